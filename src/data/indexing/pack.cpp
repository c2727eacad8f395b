// Tars in WebDataset's layout.

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/number.hpp"
#include "data/images/tar.hpp"
#include "data/indexing/check.hpp"
#include "data/indexing/tar_writer.hpp"
#include "files/bytes.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::size_t>;

/// A tar to write.
struct Shard {
  std::string path;
  bool test = false;
  std::size_t begin = 0, end = 0;  ///< range of the order
};

/// Input and form of the tars.
struct Pack {
  const IndexOptions& options;
  const Members& members;
  const MemberReader& reader;
  Numbers order;                   ///< numbers of members, shuffled: training images, then test images
  std::vector<std::string> names;  ///< names in the tars, for each place of the order, without .jpg
  std::vector<Shard> shards;
};

/// The name that a path becomes: a WebDataset's reader takes what stands before the first dot.
[[nodiscard]] std::string packed_name(const std::string& path) {
  constexpr std::size_t kLongest = TarWriter::kLongestName - 16;  // beside a number and an ending
  std::string name = path.substr(0, path.rfind('.'));
  if (name.size() > kLongest) name.erase(0, name.size() - kLongest);
  for (char& c : name)
    if (!is_plain({&c, 1}, "-/")) c = '_';
  if (name.empty() || name.front() == '/') name.insert(0, "_");
  return name;
}

/// The order, by a hash of paths: of other images it is the same, whether one is there or not.
[[nodiscard]] Numbers shuffled(const Members& members) {
  std::vector<std::uint64_t> keys;
  for (const Member& one : members.all) keys.push_back(XXH3_64bits(one.path.data(), one.path.size()));
  Numbers order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const Member &one = members.all[a], &other = members.all[b];
    return std::tie(one.test, keys[a], a) < std::tie(other.test, keys[b], b);
  });
  return order;
}

void name_all(Pack& pack) {
  std::unordered_set<std::string> taken;
  std::unordered_map<std::string, int> next;  // next number for names that several have
  for (const std::size_t number : pack.order) {
    const std::string name = packed_name(pack.members.all[number].path);
    std::string own = name;
    while (!taken.insert(own).second) own = name + "-" + std::to_string(next.try_emplace(name, 2).first->second++);
    pack.names.push_back(own);
  }
}

void divide(Pack& pack) {
  std::int64_t left = 0, count[2] = {};  // left: bytes of the last shard
  for (std::size_t k = 0; k < pack.order.size(); ++k) {
    const Member& member = pack.members.all[pack.order[k]];
    const std::int64_t own = TarWriter::room_for(member.bytes) + TarWriter::room_for(1);
    if (own > left || pack.shards.back().test != member.test) {
      const std::string name =
          fmt::format("{}-{:06}.tar", member.test ? "test" : "train", count[member.test ? 1 : 0]++);
      pack.shards.push_back({(fs::path(pack.options.output) / name).string(), member.test, k, k});
      left = pack.options.shard_bytes;
    }
    left -= own;
    pack.shards.back().end = k + 1;
  }
}

/// Returns whether a tar may be of this pack: it has an image of it, or none at all. names: of all images, without
/// .jpg.
[[nodiscard]] bool may_be_own(const std::string& path, const std::unordered_set<std::string_view>& names) {
  const auto is_own = [&](const std::string& name) {
    return names.contains(std::string_view(name).substr(0, name.rfind('.')));
  };
  const auto tar = open_bytes(path);
  std::string first = beginning_of(*tar, TarWriter::kLongestName);
  first.resize(std::min(first.find('\0'), first.size()));
  bool own = first.empty() || is_own(first);
  if (own) return true;
  try {
    for_each_in_tar(*tar, [&](const TarEntry& entry) { own = own || is_own(entry.path); });
  } catch (const Error&) {  // one that is cut off is written anew
  }
  return own;
}

/// Makes the folder, and removes what a killed call has left of this pack. Error(data): tars of another pack, or of
/// somebody else.
void require_own_folder(const Pack& pack) {
  const std::string& folder = pack.options.output;
  make_folder(folder);
  std::unordered_set<std::string> own;
  for (const Shard& shard : pack.shards) own.insert(fs::path(shard.path).filename().string());
  std::unordered_set<std::string_view> images;
  std::vector<fs::path> left_over;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (const std::size_t end = name.find(".tmp-"); name.starts_with('.') && end != std::string::npos) {
      const std::string of = name.substr(1, end - 1);
      if (own.contains(of) || of == kClassNamesFile || of == "damaged.txt") left_over.push_back(entry.path());
    }
    if (!name.ends_with(".tar")) continue;
    if (images.empty()) images.insert(pack.names.begin(), pack.names.end());
    require(own.contains(name) && may_be_own(entry.path().string(), images), ExitCode::data, folder, ": has ", name,
            " already, which is not of this pack; give another folder");
  }
  std::error_code error;
  for (const fs::path& path : left_over) fs::remove(path, error);
  require_writable((fs::path(folder) / kClassNamesFile).string());
}

[[nodiscard]] std::string text_at(const ByteSource& tar, const TarEntry& entry) {
  constexpr std::int64_t kMost = 16;
  std::string text(static_cast<std::size_t>(std::clamp<std::int64_t>(entry.bytes, 0, kMost)), '\0');
  tar.read(entry.offset, text.data(), std::ssize(text));
  return text;
}

/// The images of a shard that a tar has, which an earlier call may have left, as places of the order. None: there is
/// no such tar, or it has others.
[[nodiscard]] Numbers packed_in(const Pack& pack, const Shard& shard) {
  Numbers found;
  const auto begin = pack.names.begin(), end = begin + static_cast<std::ptrdiff_t>(shard.end);
  auto next = begin + static_cast<std::ptrdiff_t>(shard.begin);
  bool labelled = true;
  const auto require_own = [](bool own) { require(own, ExitCode::data, "has others"); };
  try {
    const auto tar = open_bytes(shard.path);
    for_each_in_tar(*tar, [&](const TarEntry& entry) {
      const std::string name = entry.path.substr(0, entry.path.rfind('.'));
      const auto member = [&](std::size_t k) -> const Member& { return pack.members.all[pack.order[k]]; };
      labelled = !labelled;
      if (labelled)
        return require_own(entry.path == pack.names[found.back()] + ".cls" &&
                           text_at(*tar, entry) == std::to_string(member(found.back()).label));
      next = std::find(next, end, name);
      require_own(next != end);
      found.push_back(static_cast<std::size_t>(next++ - begin));
      require_own(member(found.back()).bytes == entry.bytes);
    });
  } catch (const Error&) {
    return {};
  }
  return labelled ? found : Numbers{};
}

/// Writes the images of a shard that are whole.
void write_shard(const Pack& pack, const Shard& shard, const std::vector<MemberReader::Checked>& seen) {
  write_atomically(shard.path, [&](const std::string& temporary) {
    TarWriter tar(temporary);
    std::vector<std::uint8_t> bytes;
    for (std::size_t k = shard.begin; k < shard.end; ++k) {
      const MemberReader::Checked& one = seen[k - shard.begin];
      if (!one.damage.empty()) continue;
      pack.reader.read_again(pack.order[k], one, bytes);
      tar.add(pack.names[k] + (one.png ? ".png" : ".jpg"), bytes);
      const std::string label = std::to_string(pack.members.all[pack.order[k]].label);
      bytes.assign(label.begin(), label.end());
      tar.add(pack.names[k] + ".cls", bytes);
    }
    tar.close();
  });
}

/// The numbers of a part of the order, but for some places of it.
[[nodiscard]] Numbers numbers_of(const Pack& pack, const Shard& shard, const Numbers& without) {
  Numbers numbers;
  auto next = without.begin();
  for (std::size_t k = shard.begin; k < shard.end; ++k) {
    if (next != without.end() && *next == k)
      ++next;
    else
      numbers.push_back(pack.order[k]);
  }
  return numbers;
}

}  // namespace

Indexed write_pack(const IndexOptions& options) {
  const Members members = members_to_index(options.source);
  const MemberReader reader(members, options.threads, options.progress);
  Pack pack{options, members, reader, shuffled(members), {}, {}};
  name_all(pack);
  divide(pack);
  require_own_folder(pack);
  std::int64_t tars = 0, kept_tars = 0;
  std::vector<bool> whole(members.all.size());
  std::vector<std::string> damage;
  const auto images = static_cast<double>(pack.order.size());
  for (const Shard& shard : pack.shards) {
    const double done = static_cast<double>(shard.begin) / images,
                 part = static_cast<double>(shard.end - shard.begin) / images;
    const Numbers there = packed_in(pack, shard);
    const auto is_damaged = [](const MemberReader::Checked& one) { return !one.damage.empty(); };
    // Images that a kept tar lacks were damaged, and must be so still.
    std::vector<MemberReader::Checked> seen = reader.check(numbers_of(pack, shard, there), done, part);
    const bool kept = !there.empty() && std::ranges::all_of(seen, is_damaged);
    if (!kept && !there.empty()) seen = reader.check(numbers_of(pack, shard, {}), done, part);
    const std::vector<std::string> own_damage = damage_among(seen);
    damage.insert(damage.end(), own_damage.begin(), own_damage.end());
    for (const std::size_t k : there) whole[pack.order[k]] = true;
    if (!kept)
      for (std::size_t k = shard.begin; const MemberReader::Checked& one : seen)
        whole[pack.order[k++]] = one.damage.empty();
    reader.tell(done + part);
    if (!kept && own_damage.size() == seen.size()) continue;  // none is whole
    ++tars;
    if (kept) ++kept_tars;
    if (!kept && (damage.empty() || options.skip_damage)) write_shard(pack, shard, seen);
  }
  list_damage(options, damage_list(options.output, true), damage);
  Indexed made = account_of(options.source, members, whole);
  made.containers = tars;
  made.kept = kept_tars;
  write_text_atomically((fs::path(options.output) / kClassNamesFile).string(),
                        lines_of(clean_class_names(members.class_names)));
  return made;
}

}  // namespace dat
