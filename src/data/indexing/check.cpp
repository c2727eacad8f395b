#include "data/indexing/check.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <numeric>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/images/decode.hpp"
#include "data/images/index.hpp"
#include "data/images/png.hpp"
#include "data/on_threads.hpp"
#include "files/confined.hpp"

namespace dat {

namespace {

/// The labels of a split, for class_remarks().
struct LabelsAlone final : Dataset {
  [[nodiscard]] const DatasetInfo& info() const override { return about; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(labels); }
  [[nodiscard]] int label(std::int64_t index) const override { return labels[static_cast<std::size_t>(index)]; }
  void read(std::int64_t, std::uint8_t*) const override {}

  DatasetInfo about;
  std::vector<int> labels;
};

[[nodiscard]] Members members_for(const IndexOptions& options) {
  require_writable(options.output);
  return members_to_index(options.source);
}

}  // namespace

MemberReader::MemberReader(const Members& members, int threads, std::function<void(double part)> progress)
    : members_(members),
      files_(members.folder, members.containers),
      threads_(threads),
      progress_(std::move(progress)) {}

void MemberReader::tell(double done) const {
  more_time(kIndexSeconds);
  if (progress_) progress_(done);
}

void MemberReader::read(std::size_t number, std::vector<std::uint8_t>& to) const {
  const Member& member = members_.all[number];
  require(member.bytes >= 0, ExitCode::data, "is no file, but a link in a tar or one that leads nowhere");
  require(member.bytes > 0 && member.bytes <= kMostImageBytes, ExitCode::data, "has ", member.bytes, " bytes");
  files_.read(member.container, member.path, member.offset, member.bytes, to);
}

std::string MemberReader::named(std::size_t number, const std::string& text) const {
  const Member& member = members_.all[number];
  const std::string place = files_.place(member.container, member.path);
  return in_one_line(without_controls(text.starts_with(place) ? text : place + ": " + text));
}

void MemberReader::read_again(std::size_t number, const Checked& as, std::vector<std::uint8_t>& to) const {
  try {
    read(number, to);
  } catch (const Error& error) {
    throw Error(error.code(), named(number, error.what()));
  }
  if (XXH3_64bits(to.data(), to.size()) != as.hash)
    fail(ExitCode::data, named(number, "has changed while it was read"));
}

std::vector<MemberReader::Checked> MemberReader::check(std::span<const std::size_t> numbers, double done,
                                                       double part) const {
  std::vector<Checked> found(numbers.size());
  std::mutex mutex, large;
  std::atomic<std::size_t> checked = 0;
  on_threads(threads_, numbers.size(), [&](std::size_t k) {
    thread_local ImageDecoder decoder;
    thread_local std::vector<std::uint8_t> bytes;
    Checked& one = found[k];
    std::unique_lock<std::mutex> alone;
    if (members_.all[numbers[k]].bytes > kLargeImageBytes) alone = std::unique_lock(large);
    const auto check_one = [&] {
      read(numbers[k], bytes);
      one.shape = decoder.check(bytes);
      one.png = is_png(bytes);
      one.hash = XXH3_64bits(bytes.data(), bytes.size());
    };
    const auto give_back = [&] {
      std::vector<std::uint8_t>().swap(bytes);
      decoder = ImageDecoder();
    };
    try {
      try {
        check_one();
      } catch (const std::bad_alloc&) {  // others' images may have taken the memory: once more, among no large ones
        give_back();
        if (!alone) alone = std::unique_lock(large);
        check_one();
      }
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      one.damage = named(numbers[k], error.what());
    } catch (const std::bad_alloc&) {
      one.damage = named(numbers[k], "wants more memory than it may have");
    }
    if (alone) give_back();
    const std::size_t count = ++checked;
    if (const std::unique_lock lock(mutex, std::try_to_lock); lock.owns_lock())  // else another thread reports
      tell(done + part * static_cast<double>(count) / static_cast<double>(numbers.size()));
  });
  return found;
}

std::vector<MemberReader::Checked> MemberReader::check_all(double part) const {
  std::vector<std::size_t> all(members_.all.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return check(all, 0, part);
}

std::vector<std::string> damage_among(const std::vector<MemberReader::Checked>& seen) {
  std::vector<std::string> damage;
  for (const MemberReader::Checked& one : seen)
    if (!one.damage.empty()) damage.push_back(one.damage);
  return damage;
}

void require_writable(const std::string& output) {
  namespace fs = std::filesystem;
  const fs::path path(output);
  std::error_code error;
  require(!fs::is_directory(path, error), ExitCode::io, "cannot write ", output, ": it is a folder");
  const std::string beside = (path.parent_path() / ("." + path.filename().string() + ".tmp-try")).string();
  const bool writable = std::ofstream(beside).is_open();
  require(writable, ExitCode::io, "cannot write ", output, ": ", system_reason(errno));
  ::unlink(beside.c_str());
}

Members members_to_index(const std::string& source) {
  Members members = members_of(source);
  require(members.class_names.size() > 1, ExitCode::data, source, ": all images are of one class, ",
          in_one_line(without_controls(members.class_names.front())), ": there is nothing to tell apart");
  return members;
}

CheckedSource::CheckedSource(const IndexOptions& options, double part)
    : members(members_for(options)), reader(members, options.threads, options.progress), seen(reader.check_all(part)) {
  list_damage(options, damage_list(options.output, false), damage_among(seen));
  std::vector<bool> whole;
  for (const MemberReader::Checked& one : seen) whole.push_back(one.damage.empty());
  made = account_of(options.source, members, whole);
}

std::string damage_list(const std::string& output, bool pack) {
  return pack ? (std::filesystem::path(output) / "damaged.txt").string() : output + ".damaged.txt";
}

Indexed account_of(const std::string& source, const Members& members, const std::vector<bool>& whole) {
  LabelsAlone train, test;
  for (std::size_t k = 0; k < whole.size(); ++k)
    if (whole[k]) (members.all[k].test ? test : train).labels.push_back(members.all[k].label);
  const std::int64_t damaged = std::ranges::count(whole, false);
  require(damaged != std::ssize(whole), ExitCode::data, source, ": no image is whole");
  train.about.class_names = clean_class_names(members.class_names);
  return {.train = train.size(),
          .test = test.size(),
          .classes = std::ssize(members.class_names),
          .containers = std::ssize(members.containers),
          .others = members.others,
          .damaged = damaged,
          .remarks = class_remarks(train, &test)};
}

void list_damage(const IndexOptions& options, const std::string& list, const std::vector<std::string>& damage) {
  if (damage.empty()) return static_cast<void>(::unlink(list.c_str()));
  std::string lines;
  for (const std::string& one : damage) lines += one + "\n";
  write_text_atomically(list, lines);
  const bool one = damage.size() == 1;
  require(options.skip_damage, ExitCode::data, options.source, ": ", damage.size(), " damaged image", one ? "" : "s",
          ", listed in ", list, "; --on-damage skip leaves ", one ? "it" : "them", " out; ",
          one ? "" : "the first one is ", damage.front());
}

}  // namespace dat
