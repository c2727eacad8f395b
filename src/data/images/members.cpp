#include "data/images/members.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/tick.hpp"
#include "data/images/tar.hpp"
#include "files/bytes.hpp"
#include "files/outside_json.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Bytes of a source from `begin` on.
class PartOfSource final : public ByteSource {
 public:
  PartOfSource(const ByteSource& whole, const TarEntry& part)
      : whole_(whole), name_(whole.name() + ": " + in_one_line(part.path)), begin_(part.offset), size_(part.bytes) {}
  const std::string& name() const override { return name_; }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t offset, void* to, std::int64_t bytes) const override {
    require(offset >= 0 && bytes <= size_ - offset, ExitCode::data, name_, ": is cut off");
    whole_.read(begin_ + offset, to, bytes);
  }

 private:
  const ByteSource& whole_;
  std::string name_;
  std::int64_t begin_, size_;
};

[[nodiscard]] std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

/// Returns whether a file, or a folder that it is in, has a name that begins with a dot.
[[nodiscard]] bool is_hidden(const std::string& path) {
  for (std::size_t at = 0; at != std::string::npos; at = path.find('/', at)) {
    if (path[at] == '/') ++at;
    const std::string_view rest = std::string_view(path).substr(at);
    if (rest.starts_with('.') && !rest.starts_with("./") && !rest.starts_with("../")) return true;
  }
  return false;
}

[[nodiscard]] bool is_image(const std::string& path) {
  const std::string name = lower(path);
  return (name.ends_with(".jpg") || name.ends_with(".jpeg") || name.ends_with(".png")) && !is_hidden(path);
}

/// Names of splits: of training images, then of test images, what comes first counting most.
constexpr const char* kSplitFolders[] = {"train", "test", "val", "valid", "validation"};
constexpr int kNoSplit = -1;
[[nodiscard]] int split_named(const std::string& name) {
  const auto* const found = std::find(std::begin(kSplitFolders), std::end(kSplitFolders), name);
  return found == std::end(kSplitFolders) ? kNoSplit : static_cast<int>(found - std::begin(kSplitFolders));
}
/// The split that a tar's name begins with, such as val of Val-000001.tar.
[[nodiscard]] int split_of_tar(const std::string& name) {
  const std::string own = lower(name);
  return split_named(own.substr(0, own.find_first_not_of("abcdefghijklmnopqrstuvwxyz")));
}

/// Leaves out the images of a split of test images where there is one that counts more, and says which are test images.
/// splits: of each image.
void choose_splits(const std::vector<signed char>& splits, std::vector<Member>& all) {
  int test = static_cast<int>(std::ssize(kSplitFolders));
  for (const int split : splits)
    if (split > 0) test = std::min(test, split);
  std::size_t kept = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (splits[k] > 0 && splits[k] != test) continue;
    if (kept != k) all[kept] = std::move(all[k]);
    all[kept++].test = splits[k] > 0;
  }
  all.resize(kept);
}

[[nodiscard]] std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> all;
  for (const fs::path& part : fs::path(path))
    if (!part.empty() && part != ".") all.push_back(part.string());
  return all;
}

/// The place of the folder that names a split among the parts of a path.
[[nodiscard]] std::optional<std::size_t> split_folder(const std::vector<std::string>& parts) {
  for (std::size_t k = 0; k + 1 < parts.size(); ++k)
    if (split_named(lower(parts[k])) != kNoSplit) return k;
  return {};
}

/// The split of an image: what a folder of its path names, else what the name of a tar in its tar begins with, else
/// what that of its tar does.
[[nodiscard]] int split_of(const std::vector<std::string>& parts, int of_tar) {
  if (const auto folder = split_folder(parts)) return split_named(lower(parts[*folder]));
  for (std::size_t k = 0; k + 1 < parts.size(); ++k)
    if (const int split = split_of_tar(parts[k]); split != kNoSplit) return split;
  return of_tar;
}

/// Adds the files of a tar; those of a tar in it as if they lay in a folder of its name.
void add_tar(const ByteSource& tar, int container, std::vector<Member>& all) {
  const auto add = [&](const std::string& folder, const TarEntry& entry, std::int64_t begin) {
    if (entry.bytes < 0 && !is_image(entry.path)) return;
    std::string_view path = entry.path;
    while (path.starts_with("./")) path.remove_prefix(2);
    all.push_back({.container = container,
                   .path = folder + std::string(path),
                   .offset = begin + entry.offset,
                   .bytes = entry.bytes});
  };
  for_each_in_tar(tar, [&](const TarEntry& entry) {
    if (entry.bytes < 0 || is_hidden(entry.path) || !lower(entry.path).ends_with(".tar")) return add("", entry, 0);
    const std::string name = entry.path.substr(0, entry.path.size() - 4) + "/";
    for_each_in_tar(PartOfSource(tar, entry), [&](const TarEntry& one) { add(name, one, entry.offset); });
  });
}

/// All files of a folder, sorted. Links that lead nowhere, and what is no file, are there where they have an image's
/// name.
[[nodiscard]] std::vector<Member> files_below(const std::string& source) {
  std::vector<Member> all;
  std::error_code error, ignored;
  const auto options = fs::directory_options::follow_directory_symlink;
  std::int64_t entries{};
  std::string last = source;
  for (fs::recursive_directory_iterator at(source, options, error), end; !error && at != end; at.increment(error)) {
    tick();
    last = at->path().string();
    constexpr int kDeepest = 32;  // a link may lead round
    require(at.depth() <= kDeepest, ExitCode::data, last, ": folders in folders, ", kDeepest, " deep");
    constexpr std::int64_t kMost = 1'000'000'000;
    require(++entries < kMost, ExitCode::data, source, ": has more than ", kMost, " files");
    std::string path = at->path().lexically_relative(source).string();
    const bool file = at->is_regular_file(ignored);
    if (!file && (at->is_directory(ignored) || !is_image(path))) continue;
    const auto bytes = file ? static_cast<std::int64_t>(at->file_size(ignored)) : -1;
    all.push_back({.path = std::move(path), .bytes = bytes});
  }
  require(!error, ExitCode::data, source, ": cannot be listed at ", last, ": ", error.message());
  std::ranges::sort(all, [](const Member& a, const Member& b) { return a.path < b.path; });
  return all;
}

/// Finds the files of a source: of a folder all, or those of the tars that lie right in it.
void find_files(const std::string& source, Members& members) {
  std::error_code error;
  if (!fs::is_directory(source, error)) {
    members.folder = fs::path(source).parent_path().string();
    members.containers = {fs::path(source).filename().string()};
    return add_tar(*open_bytes(source), 0, members.all);
  }
  members.folder = source;
  members.all = files_below(source);
  const auto is_tar = [](const Member& one) {
    return one.path.find('/') == std::string::npos && lower(one.path).ends_with(".tar") && !is_hidden(one.path);
  };
  const auto tar = std::ranges::find_if(members.all, is_tar);
  if (tar == members.all.end()) return;
  const auto loose = std::ranges::find_if(members.all, [](const Member& one) { return is_image(one.path); });
  require(loose == members.all.end(), ExitCode::data, source, ": has tars (", in_one_line(tar->path),
          ") and images beside them (", in_one_line(loose == members.all.end() ? "" : loose->path),
          "); move one kind elsewhere");
  for (const Member& one : std::exchange(members.all, {})) {
    if (!is_tar(one)) continue;
    members.containers.push_back(one.path);
    add_tar(*open_bytes((fs::path(source) / one.path).string()), static_cast<int>(members.containers.size()) - 1,
            members.all);
  }
}

/// A file's name up to the first dot of its last part, and what follows that dot.
struct Key {
  explicit Key(const std::string& path) {
    const std::size_t dot = path.find('.', path.rfind('/') + 1);
    name = path.substr(0, dot);
    kind = dot == std::string::npos ? "" : lower(path.substr(dot + 1));
  }
  [[nodiscard]] bool is_label() const { return kind == "cls" || kind == "json"; }
  [[nodiscard]] bool is_image() const { return kind == "jpg" || kind == "jpeg" || kind == "png"; }
  std::string name, kind;
};

/// Labels of shards: small files, read from where they lie.
class Labels {
 public:
  explicit Labels(const Members& members) : members_(members) {}
  /// Label in a .cls or .json file; empty: it has none.
  [[nodiscard]] std::optional<std::int64_t> in(const Member& file, const std::string& kind) {
    constexpr std::int64_t kMost = 1 << 20;
    const std::string where =
        members_.containers[static_cast<std::size_t>(file.container)] + ": " + in_one_line(file.path);
    require(file.bytes <= kMost, ExitCode::data, where, ": a label of ", file.bytes, " bytes");
    std::string text(static_cast<std::size_t>(file.bytes), '\0');
    container(file.container).read(file.offset, text.data(), file.bytes);
    if (kind == "json") {
      const nlohmann::json json = json_or_discarded(text);
      require(!json.is_discarded(), ExitCode::data, where, ": is no JSON");
      if (!json.is_object() || !json.contains("cls")) return {};
      require(json["cls"].is_number_integer(), ExitCode::data, where, ": \"cls\" is no whole number");
      return json["cls"].get<std::int64_t>();
    }
    std::int64_t label{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), label);
    require(problem == std::errc() && std::all_of(end, static_cast<const char*>(text.data() + text.size()),
                                                  [](char c) { return c == '\n' || c == '\r' || c == ' '; }),
            ExitCode::data, where, ": is no label");
    return label;
  }

 private:
  const ByteSource& container(int number) {
    if (number != open_) {
      const fs::path name = members_.containers[static_cast<std::size_t>(number)];
      file_ = open_bytes((fs::path(members_.folder) / name).string());
      open_ = number;
    }
    return *file_;
  }

  const Members& members_;
  std::unique_ptr<ByteSource> file_;
  int open_ = -1;
};

/// The names of classes that a folder of shards has; none: it has no such file.
[[nodiscard]] std::vector<std::string> names_beside(const std::string& source) {
  const fs::path path = fs::path(source) / kClassNamesFile;
  std::error_code error;
  if (!fs::is_directory(source, error) || !fs::exists(path, error)) return {};
  const auto file = open_bytes(path.string());
  constexpr std::int64_t kMost = 8 << 20;
  require(file->size() <= kMost, ExitCode::data, path.string(), ": has ", file->size(), " bytes: too many for names");
  return class_names_of(beginning_of(*file, kMost));
}

/// Returns whether labels stand beside images.
[[nodiscard]] bool are_shards(const std::vector<Member>& files) {
  std::vector<std::size_t> labelled;  // hashes of names
  const auto hash = [](const Member& file, const Key& key) {
    return std::hash<std::string>()(key.name) + static_cast<std::size_t>(file.container);
  };
  for (const Member& file : files)
    if (const Key key(file.path); key.is_label()) labelled.push_back(hash(file, key));
  std::ranges::sort(labelled);
  return !labelled.empty() && std::ranges::any_of(files, [&](const Member& file) {
    const Key key(file.path);
    return key.is_image() && is_image(file.path) && std::ranges::binary_search(labelled, hash(file, key));
  });
}

/// The splits that the names of the tars say.
[[nodiscard]] std::vector<int> splits_of_tars(const Members& members) {
  std::vector<int> splits;
  for (const std::string& name : members.containers) splits.push_back(split_of_tar(name));
  return splits;
}

void take_shards(const std::string& source, Members& members) {
  std::vector<Member>& files = members.all;
  Labels labels(members);
  const std::vector<int> of_tars = splits_of_tars(members);
  std::vector<signed char> splits;
  std::size_t taken = 0;
  for (std::size_t begin = 0, end; begin < files.size(); begin = end) {  // files of one sample stand together
    const Key key(files[begin].path);
    const int container = files[begin].container;
    const auto where = [&](const Member& file) {
      return members.containers[static_cast<std::size_t>(container)] + ": " + in_one_line(file.path);
    };
    Member *image = nullptr, *label = nullptr;
    std::int64_t others = 0;
    for (end = begin; end < files.size() && files[end].container == container; ++end) {
      const Key own(files[end].path);
      if (own.name != key.name) break;
      if (own.is_image() && is_image(files[end].path)) {
        require(image == nullptr, ExitCode::data, where(files[end]), ": stands beside ",
                image != nullptr ? in_one_line(image->path) : "", ", another image of one name and label");
        image = &files[end];
      } else if (own.kind == "cls" || (own.kind == "json" && label == nullptr)) {
        label = &files[end];
      } else if (!own.is_label()) {
        ++others;
      }
    }
    members.others += image == nullptr ? static_cast<std::int64_t>(end - begin) : others;
    if (image == nullptr) continue;
    const std::optional<std::int64_t> said = label == nullptr ? std::nullopt : labels.in(*label, Key(label->path).kind);
    require(said.has_value(), ExitCode::data, where(*image), ": no .cls and no \"cls\" in a .json stands beside it");
    require(*said >= 0 && *said < kMostClasses, ExitCode::data, where(*image), ": label ", *said,
            ", there can be 0 to ", kMostClasses - 1);
    image->label = static_cast<int>(*said);
    splits.push_back(
        static_cast<signed char>(split_of(components(image->path), of_tars[static_cast<std::size_t>(container)])));
    if (image != &files[taken]) files[taken] = std::move(*image);
    ++taken;
  }
  files.resize(taken);
  choose_splits(splits, files);
  int highest{};
  for (const Member& one : files) highest = std::max(highest, one.label);
  members.class_names = names_beside(source);
  require(std::ssize(members.class_names) <= kMostClasses, ExitCode::data, source, ": ", kClassNamesFile, " names ",
          members.class_names.size(), " classes, at most ", kMostClasses, " are taken");
  if (members.class_names.empty()) members.class_names = numbered_classes(highest + 1);
  require(highest < std::ssize(members.class_names), ExitCode::data, source, ": ", kClassNamesFile, " names ",
          members.class_names.size(), " classes, and there is the label ", highest);
}

/// Number of folders that the images share which lie in no folder of a split, by the split that a tar's name says;
/// after these each has another one. Splits may lie in folders of their own.
[[nodiscard]] std::map<int, std::size_t> shared_folders(const std::vector<Member>& images,
                                                        const std::vector<int>& of_tars) {
  std::map<int, std::vector<std::string>> shared;
  for (const Member& one : images) {
    std::vector<std::string> parts = components(one.path);
    if (split_folder(parts)) continue;
    parts.resize(std::max<std::size_t>(parts.size(), 2) - 2);
    const int split = one.container < 0 ? kNoSplit : of_tars[static_cast<std::size_t>(one.container)];
    const auto [at, first] = shared.try_emplace(split, parts);
    std::vector<std::string>& all = at->second;
    if (!first) all.erase(std::mismatch(all.begin(), all.end(), parts.begin(), parts.end()).first, all.end());
  }
  std::map<int, std::size_t> counts;
  for (const auto& [split, parts] : shared) counts[split] = parts.size();
  return counts;
}

/// Names the classes of images whose labels are numbers of names, and gives these their labels: in the order of the
/// names, those of test images alone after the others.
void name_classes(const std::string& source, const std::map<std::string, int>& numbers, Members& members) {
  std::vector<bool> seen[2] = {std::vector<bool>(numbers.size()), std::vector<bool>(numbers.size())};
  for (const Member& one : members.all) seen[one.test ? 1 : 0][static_cast<std::size_t>(one.label)] = true;
  std::vector<int> labels(numbers.size(), -1);
  for (const auto& images : seen)
    for (const auto& [name, number] : numbers) {
      int& label = labels[static_cast<std::size_t>(number)];
      if (label >= 0 || !images[static_cast<std::size_t>(number)]) continue;
      label = static_cast<int>(members.class_names.size());
      members.class_names.push_back(name);
    }
  require(std::ssize(members.class_names) <= kMostClasses, ExitCode::data, source, ": has ", members.class_names.size(),
          " classes, at most ", kMostClasses, " are taken");
  for (Member& one : members.all) one.label = labels[static_cast<std::size_t>(one.label)];
}

void take_folders(const std::string& source, Members& members) {
  members.others +=
      static_cast<std::int64_t>(std::erase_if(members.all, [](const Member& one) { return !is_image(one.path); }));
  const std::vector<int> of_tars = splits_of_tars(members);
  const std::map<int, std::size_t> shared = shared_folders(members.all, of_tars);
  std::map<std::string, int> numbers;  // numbers of classes, in order of appearance
  std::vector<signed char> splits;
  for (Member& one : members.all) {
    const std::vector<std::string> parts = components(one.path);
    const std::optional<std::size_t> folder = split_folder(parts);
    const int of_tar = one.container < 0 ? kNoSplit : of_tars[static_cast<std::size_t>(one.container)];
    const std::size_t at = folder ? *folder + 1 : shared.at(of_tar);
    require(at + 1 < parts.size(), ExitCode::data, source, ": ", in_one_line(one.path),
            " lies in no folder of a class; folders are train/CLASS/ and test/CLASS/, or CLASS/ alone");
    const int split = folder ? split_named(lower(parts[*folder])) : of_tar;
    splits.push_back(static_cast<signed char>(split));
    one.label = numbers.try_emplace(parts[at], static_cast<int>(numbers.size())).first->second;
  }
  choose_splits(splits, members.all);
  name_classes(source, numbers, members);
}

}  // namespace

Members members_of(const std::string& source) {
  Members members;
  find_files(source, members);
  const bool shards = !members.containers.empty() && are_shards(members.all);
  shards ? take_shards(source, members) : take_folders(source, members);
  require(!members.all.empty(), ExitCode::data, source,
          ": holds no images; names of images end in .jpg, .jpeg or .png");
  std::ranges::stable_sort(members.all, [](const Member& a, const Member& b) { return a.path < b.path; });
  return members;
}

}  // namespace dat
