#include "data/images/index.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/tick.hpp"
#include "data/images/decode.hpp"
#include "data/images/members.hpp"
#include "files/bytes.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little);

/// Reads the images of a source, by several threads.
class SourceFiles {
 public:
  explicit SourceFiles(const Members& members) : members_(members) {
    for (const std::string& name : members.containers)
      containers_.push_back(open_bytes((fs::path(members.folder) / name).string()));
  }
  void bytes(const Member& member, std::vector<std::uint8_t>& to) const {
    constexpr std::int64_t kMost = 1 << 30;
    require(member.bytes > 0 && member.bytes <= kMost, ExitCode::data, "has ", member.bytes, " bytes");
    to.resize(static_cast<std::size_t>(member.bytes));
    if (member.container >= 0)
      return containers_[static_cast<std::size_t>(member.container)]->read(member.offset, to.data(), member.bytes);
    const auto file = open_bytes((fs::path(members_.folder) / member.path).string());
    file->read(0, to.data(), member.bytes);
  }

 private:
  const Members& members_;
  std::vector<std::unique_ptr<ByteSource>> containers_;
};

/// Calls `work(k)` for all k below `count`, on some threads, in any order; the first exception comes back.
void on_threads(int threads, std::size_t count, const std::function<std::function<void(std::size_t)>()>& make_work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    try {
      const auto work = make_work();
      for (std::size_t k = next++; k < count; k = next++) work(k);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> others;
  for (int k = 1; k < threads; ++k) others.emplace_back(run);
  run();
  for (std::thread& one : others) one.join();
  if (failure) std::rethrow_exception(failure);
}

/// Records of all images; `why`: what is wrong with an image; empty: nothing.
[[nodiscard]] std::vector<ImageRecord> look_at_all(const Members& members, int threads, std::vector<std::string>& why) {
  std::vector<ImageRecord> records(members.all.size());
  why.assign(members.all.size(), "");
  const SourceFiles reading(members);
  on_threads(threads, members.all.size(), [&] {
    return [&, decoder = std::make_shared<ImageDecoder>(), bytes = std::vector<std::uint8_t>()](std::size_t k) mutable {
      tick();
      const Member& member = members.all[k];
      try {
        reading.bytes(member, bytes);
        const ImageShape shape = image_shape(bytes);
        static_cast<void>(decoder->whole(bytes));
        records[k] = {.offset = member.offset,
                      .hash = XXH3_64bits(bytes.data(), bytes.size()),
                      .container = member.container,
                      .bytes = static_cast<std::int32_t>(member.bytes),
                      .height = static_cast<std::uint16_t>(shape.height),
                      .width = static_cast<std::uint16_t>(shape.width),
                      .label = static_cast<std::int16_t>(member.label)};
      } catch (const Error& error) {
        if (error.code() != ExitCode::data) throw;
        why[k] = in_one_line(without_controls(member.path)) + ": " + error.what();
      }
    };
  });
  return records;
}

void write_split(Hdf5File& file, const Members& members, const std::vector<ImageRecord>& records,
                 const std::vector<std::string>& why, bool test, std::int64_t& count) {
  std::vector<ImageRecord> own;
  std::vector<std::uint8_t> names;
  for (std::size_t k = 0; k < records.size(); ++k) {
    const Member& member = members.all[k];
    if (member.test != test || !why[k].empty()) continue;
    names.insert(names.end(), member.path.begin(), member.path.end());
    own.push_back(records[k]);
    own.back().name_end = std::ssize(names);
  }
  count = std::ssize(own);
  if (own.empty()) return;
  std::vector<std::uint8_t> bytes(own.size() * sizeof(ImageRecord));
  std::copy_n(reinterpret_cast<const std::uint8_t*>(own.data()), bytes.size(), bytes.data());
  const std::string split = test ? "/test" : "/train";
  file.write(split + "/records", {count, std::int64_t{sizeof(ImageRecord)}}, bytes);
  file.write(split + "/names", {std::ssize(names)}, names);
}

[[nodiscard]] std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

Indexed write_index(const IndexOptions& options) {
  const Members members = members_of(options.source);
  std::vector<std::string> why;
  const std::vector<ImageRecord> records = look_at_all(members, options.threads, why);
  Indexed found{.others = members.others, .class_names = members.class_names, .damage = {}};
  for (const std::string& one : why)
    if (!one.empty()) found.damage.push_back(one);
  if (!found.damage.empty() && !options.skip_damage) {
    constexpr std::size_t kShown = 20;
    std::string all;
    for (std::size_t k = 0; k < std::min(found.damage.size(), kShown); ++k) all += "\n  " + found.damage[k];
    fail(ExitCode::data, options.source, ": ", found.damage.size(), " damaged image",
         found.damage.size() > 1 ? "s" : "", found.damage.size() > kShown ? ", of which the first ones" : "",
         "; --on-damage skip leaves them out:", all);
  }
  write_sealed(options.output, [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary);
    file.set_text("/", "filetype", "image index");
    file.set_integer("/", "format_version", 1);
    const fs::path beside = fs::absolute(options.output).parent_path();
    file.set_text("/", "folder",
                  fs::absolute(members.folder.empty() ? "." : members.folder).lexically_proximate(beside).string());
    if (!members.containers.empty()) {
      const std::vector<std::uint8_t> lines = bytes_of(lines_of(members.containers));
      file.write("/containers", {std::ssize(lines)}, lines);
    }
    const std::vector<std::uint8_t> names = bytes_of(lines_of(clean_class_names(members.class_names)));
    file.write("/class_names", {std::ssize(names)}, names);
    write_split(file, members, records, why, false, found.train);
    write_split(file, members, records, why, true, found.test);
    file.close();
  });
  return found;
}

bool is_index(const Hdf5Reader& file) { return file.text("/", "filetype").value_or("") == "image index"; }

}  // namespace dat
