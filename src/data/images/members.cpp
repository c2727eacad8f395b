#include "data/images/members.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/tick.hpp"
#include "data/images/tar.hpp"
#include "files/bytes.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// A file that was found: in a container or by itself, and, in a tar of tars, the name of the inner one.
struct Found {
  int container = -1;
  std::string inner, path;
  std::int64_t offset = 0, bytes = 0;
};

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
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

[[nodiscard]] std::string last_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

[[nodiscard]] bool is_image(const std::string& path) {
  const std::string name = lower(last_of(path));
  return !name.starts_with('.') && (name.ends_with(".jpg") || name.ends_with(".jpeg") || name.ends_with(".png"));
}

/// Where test images may be, what comes first counting most.
constexpr const char* kTests[] = {"test", "val", "valid", "validation"};
[[nodiscard]] bool is_test(const std::string& folder) {
  return std::find(std::begin(kTests), std::end(kTests), folder) != std::end(kTests);
}

[[nodiscard]] std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> all;
  for (const fs::path& part : fs::path(path))
    if (!part.empty() && part != ".") all.push_back(part.string());
  return all;
}

void add_tar(const ByteSource& tar, int container, std::vector<Found>& all) {
  for_each_in_tar(tar, [&](const TarEntry& entry) {
    if (!lower(entry.path).ends_with(".tar")) {
      all.push_back({container, "", entry.path, entry.offset, entry.bytes});
      return;
    }
    const PartOfSource inner(tar, entry);
    const std::string name = last_of(entry.path);
    for_each_in_tar(inner, [&](const TarEntry& one) {
      all.push_back({container, name.substr(0, name.size() - 4), one.path, entry.offset + one.offset, one.bytes});
    });
  });
}

/// Of a folder all files, or the tars that lie right in it.
[[nodiscard]] std::vector<Found> files_of(const std::string& source, Members& members) {
  std::vector<Found> all;
  std::error_code error;
  if (!fs::is_directory(source, error)) {
    members.folder = fs::path(source).parent_path().string();
    members.containers = {fs::path(source).filename().string()};
    add_tar(*open_bytes(source), 0, all);
    return all;
  }
  members.folder = source;
  const auto options = fs::directory_options::follow_directory_symlink;
  std::int64_t entries = 0;
  for (fs::recursive_directory_iterator at(source, options, error), end; !error && at != end; at.increment(error)) {
    tick();
    constexpr int kDeepest = 32;  // a link may lead round
    require(at.depth() <= kDeepest, ExitCode::data, at->path().string(), ": folders in folders, ", kDeepest, " deep");
    constexpr std::int64_t kMost = 1'000'000'000;
    require(++entries < kMost, ExitCode::data, source, ": has more than ", kMost, " files");
    if (!at->is_regular_file(error)) continue;
    const auto bytes = static_cast<std::int64_t>(at->file_size(error));
    all.push_back({-1, "", fs::path(at->path()).lexically_relative(source).string(), 0, bytes});
  }
  require(!error, ExitCode::data, source, ": cannot be listed: ", error.message());
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.path < b.path; });
  const auto is_tar = [](const Found& one) {
    return one.path.find('/') == std::string::npos && lower(one.path).ends_with(".tar");
  };
  if (std::none_of(all.begin(), all.end(), is_tar)) return all;
  const std::vector<Found> tars = std::exchange(all, {});
  for (const Found& one : tars) {
    if (!is_tar(one)) continue;
    members.containers.push_back(one.path);
    add_tar(*open_bytes((fs::path(source) / one.path).string()), static_cast<int>(members.containers.size()) - 1, all);
  }
  return all;
}

/// A file's name up to the first dot of its last part, and what follows that dot.
struct Key {
  explicit Key(const std::string& path) {
    const std::size_t dot = path.find('.', path.rfind('/') + 1);
    name = path.substr(0, dot);
    kind = dot == std::string::npos ? "" : lower(path.substr(dot + 1));
  }
  std::string name, kind;
};

/// Labels of shards: small files, read from where they lie.
class Labels {
 public:
  Labels(const std::string& source, const Members& members) : source_(source), members_(members) {}
  /// Of a .cls or .json file; empty: it has none.
  [[nodiscard]] std::optional<std::int64_t> in(const Found& file, const std::string& kind) {
    constexpr std::int64_t kMost = 1 << 20;
    const std::string where =
        members_.containers[static_cast<std::size_t>(file.container)] + ": " + in_one_line(file.path);
    require(file.bytes <= kMost, ExitCode::data, where, ": a label of ", file.bytes, " bytes");
    std::string text(static_cast<std::size_t>(file.bytes), '\0');
    container(file.container).read(file.offset, text.data(), file.bytes);
    if (kind == "json") {
      const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
      require(!json.is_discarded(), ExitCode::data, where, ": is no JSON");
      if (!json.is_object() || !json.contains("cls")) return {};
      require(json["cls"].is_number_integer(), ExitCode::data, where, ": \"cls\" is no whole number");
      return json["cls"].get<std::int64_t>();
    }
    std::int64_t label = 0;
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

  const std::string& source_;
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
  std::string lines(static_cast<std::size_t>(file->size()), '\0');
  file->read(0, lines.data(), file->size());
  return class_names_of(lines);
}

void take_shards(const std::string& source, const std::vector<Found>& files, Members& members) {
  Labels labels(source, members);
  std::int64_t highest = -1;
  const auto tests = [&](int container) {
    const std::string name = lower(members.containers[static_cast<std::size_t>(container)]);
    return std::any_of(std::begin(kTests), std::end(kTests), [&](const char* one) { return name.starts_with(one); });
  };
  for (std::size_t begin = 0, end; begin < files.size(); begin = end) {  // files of one sample stand together
    const Key key(files[begin].path);
    const Found* image = nullptr;
    std::optional<std::int64_t> label;
    for (end = begin; end < files.size() && files[end].container == files[begin].container; ++end) {
      const Key own(files[end].path);
      if (own.name != key.name) break;
      if (is_image(files[end].path))
        image = &files[end];
      else if (own.kind == "cls" || (own.kind == "json" && !label))
        label = labels.in(files[end], own.kind);
      else
        ++members.others;
    }
    if (image == nullptr) continue;
    const std::string where =
        members.containers[static_cast<std::size_t>(image->container)] + ": " + in_one_line(image->path);
    require(label.has_value(), ExitCode::data, where, ": no .cls and no \"cls\" in a .json stands beside it");
    require(*label >= 0 && *label < kMostClasses, ExitCode::data, where, ": label ", *label, ", there can be 0 to ",
            kMostClasses - 1);
    highest = std::max(highest, *label);
    members.all.push_back({image->container, image->path, image->offset, image->bytes, tests(image->container),
                           static_cast<int>(*label)});
  }
  members.class_names = names_beside(source);
  if (members.class_names.empty()) members.class_names = numbered_classes(static_cast<int>(highest) + 1);
  require(highest < std::ssize(members.class_names), ExitCode::data, source, ": ", kClassNamesFile, " names ",
          members.class_names.size(), " classes, and there is the label ", highest);
}

void take_folders(const std::string& source, const std::vector<Found>& files, Members& members) {
  // The class of each image, and the folder of its split; empty: none.
  std::vector<std::pair<std::string, std::string>> places;
  std::vector<const Found*> images;
  std::set<std::string> splits, names;
  for (const Found& file : files) {
    if (!is_image(file.path)) {
      ++members.others;
      continue;
    }
    const std::vector<std::string> parts = components(file.path);
    std::string split, name = file.inner;
    for (std::size_t k = 0; k + 1 < parts.size(); ++k) {
      const std::string folder = lower(parts[k]);
      if (!split.empty() || (folder != "train" && !is_test(folder))) continue;
      split = folder;
      if (name.empty() && k + 2 < parts.size()) name = parts[k + 1];
    }
    if (name.empty() && split.empty() && parts.size() > 1) name = parts[parts.size() - 2];
    require(!name.empty(), ExitCode::data, source, ": ", in_one_line(file.path),
            " lies in no folder of a class; folders are train/CLASS/ and test/CLASS/, or CLASS/ alone");
    splits.insert(split);
    places.emplace_back(split, name);
    images.push_back(&file);
  }
  const auto* tests =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const char* one) { return splits.contains(one); });
  const auto taken = [&](const std::string& split) {
    return !is_test(split) || (tests != std::end(kTests) && split == *tests);
  };
  std::map<std::string, int> labels;
  for (const bool test : {false, true}) {  // classes of test images alone come after the others
    std::set<std::string> some;
    for (const auto& [split, name] : places)
      if (taken(split) && is_test(split) == test && !labels.contains(name)) some.insert(name);
    for (const std::string& name : some) labels.emplace(name, static_cast<int>(labels.size()));
  }
  require(std::ssize(labels) <= kMostClasses, ExitCode::data, source, ": has ", labels.size(), " classes, at most ",
          kMostClasses, " are taken");
  members.class_names.resize(labels.size());
  for (const auto& [name, label] : labels) members.class_names[static_cast<std::size_t>(label)] = name;
  for (std::size_t k = 0; k < images.size(); ++k) {
    const auto& [split, name] = places[k];
    if (!taken(split)) continue;
    const Found& file = *images[k];
    members.all.push_back({file.container, file.path, file.offset, file.bytes, is_test(split), labels.at(name)});
  }
}

}  // namespace

Members members_of(const std::string& source) {
  Members members;
  const std::vector<Found> files = files_of(source, members);
  const bool shards = !members.containers.empty() && std::any_of(files.begin(), files.end(), [](const Found& file) {
    const std::string kind = Key(file.path).kind;
    return kind == "cls" || kind == "json";
  });
  shards ? take_shards(source, files, members) : take_folders(source, files, members);
  require(!members.all.empty(), ExitCode::data, source,
          ": holds no images; names of images end in .jpg, .jpeg or .png");
  std::stable_sort(members.all.begin(), members.all.end(),
                   [](const Member& a, const Member& b) { return a.path < b.path; });
  return members;
}

}  // namespace dat
