// MNIST's files, and those of sets that come in its form: Fashion-MNIST, KMNIST, QMNIST, and EMNIST, whose images are
// turned about their diagonal and whose letters are labelled from 1.
// Source: https://www.nist.gov/itl/products-and-services/emnist-dataset; https://github.com/facebookresearch/qmnist

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/convert/forms.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Content of a file's name: "emnist-letters-test-labels-idx1-ubyte.gz" is of the set "emnist-letters".
struct IdxName {
  std::string set, split;
  bool images = false, packed = false;
};

/// Takes one of these ends off. False: none is there.
bool take(std::string& text, std::initializer_list<const char*> ends) {
  for (const std::string end : ends)
    if (text.ends_with(end)) {
      text.resize(text.size() - end.size());
      return true;
    }
  return false;
}

std::optional<IdxName> read_name(std::string text) {
  IdxName name;
  name.packed = take(text, {".gz"});
  // QMNIST keeps more than the class with each image: idx2-int.
  if (!take(text, {"-ubyte", ".ubyte", "-int"}) || !take(text, {"idx1", "idx2", "idx3"}) || !take(text, {"-", "."}))
    return {};
  name.images = take(text, {"images"});
  if (!name.images && !take(text, {"labels"})) return {};
  name.split = take(text, {"train-"}) ? "train" : "test";
  if (name.split == "test" && !take(text, {"t10k-", "test-"})) return {};
  static_cast<void>(take(text, {"-"}));
  name.set = text;
  return name;
}

/// The files of a set by split, and whether of images; as they are sooner than packed.
using IdxSet = std::map<std::pair<std::string, bool>, fs::path>;

/// The sets in a folder by their names, which is empty for MNIST's. Error(data): a file under two names.
std::map<std::string, IdxSet> sets_in(const std::string& folder) {
  std::map<std::string, IdxSet> sets;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    const std::optional<IdxName> name = read_name(file);
    if (!name || !entry.is_regular_file(error)) continue;
    fs::path& path = sets[name->set][{name->split, name->images}];
    const bool other_packed = !path.empty() && path.extension() == ".gz";
    require(path.empty() || other_packed != name->packed, ExitCode::data, folder, ": has both ",
            std::min(path.filename().string(), file), " and ", std::max(path.filename().string(), file),
            " for the same data; leave one of them out");
    if (path.empty() || other_packed) path = entry.path();
  }
  return sets;
}

/// The first column of [n, k].
class FirstColumn final : public ByteStream {
 public:
  FirstColumn(std::unique_ptr<ByteStream> rows, std::int64_t item, std::int64_t row)
      : rows_(std::move(rows)), item_(item), row_(static_cast<std::size_t>(row)) {}
  void read(void* to, std::int64_t bytes) override {
    auto* out = static_cast<char*>(to);
    for (const char* const end = out + bytes; out != end; out += item_) {
      rows_->read(row_.data(), std::ssize(row_));
      std::copy_n(row_.data(), item_, out);
    }
  }

 private:
  std::unique_ptr<ByteStream> rows_;
  std::int64_t item_;
  std::vector<char> row_;
};

/// Labels [n] of a file of labels, which may say more of each image after the class (QMNIST).
StoredArray classes_in(const ByteSource& source) {
  StoredArray labels = open_idx(source);
  constexpr std::int64_t kMostColumns = 64;
  if (labels.shape.size() != 2) return labels;
  const std::int64_t columns = labels.shape[1], item = labels.item_bytes, row = item * columns;
  if (columns < 2 || columns > kMostColumns) return labels;
  static_cast<void>(set_shape({labels.shape[0]}, labels));
  labels.open = [open = labels.open, item, row] { return std::make_unique<FirstColumn>(open(), item, row); };
  return labels;
}

fs::path mapping_of(const fs::path& folder, const std::string& set) { return folder / (set + "-mapping.txt"); }

/// The characters that EMNIST's classes are, by "SET-mapping.txt" with lines of a label and the characters' codes; none
/// where the file is not there.
std::vector<std::string> characters_of(const fs::path& folder, const std::string& set) {
  std::ifstream file(mapping_of(folder, set));
  std::vector<std::string> names;
  constexpr std::size_t kMost = 256;
  for (std::string line; names.size() < kMost && std::getline(file, line);) {
    std::istringstream words(line);
    int label{}, code{};
    if (words >> label >> code && code > ' ' && code < 127) names.emplace_back(1, static_cast<char>(code));
  }
  return names.size() >= 2 ? names : std::vector<std::string>{};
}

void convert_set(const ConvertOptions& options, const fs::path& folder, const std::string& name, const IdxSet& set) {
  const bool emnist = name.starts_with("emnist-");
  std::vector<std::unique_ptr<ByteSource>> sources;
  std::vector<SplitArrays> splits;
  std::string text = "idx files";
  const auto open = [&](const std::string& split, bool images) -> const ByteSource& {
    const auto found = set.find({split, images});
    const std::string stem = (name.empty() ? "" : name + "-") +
                             (split == "train" ? "train"
                              : name.empty()   ? "t10k"
                                               : "test") +
                             (images ? "-images-idx3-ubyte" : "-labels-idx1-ubyte");
    require(found != set.end(), ExitCode::data, folder.string(), ": ", stem, " is missing, and so is ", stem, ".gz");
    text += " " + found->second.filename().string();
    return *sources.emplace_back(open_bytes(found->second.string()));
  };
  for (const char* split : {"train", "test"}) {
    StoredArray images = open_idx(open(split, true));
    std::vector<std::int64_t> shape = images.shape;
    require(!emnist || shape.size() == 3, ExitCode::data, folder.string(), ": ", images.name, " is ", images.text(),
            ", but EMNIST's images have three dimensions, [n, size, size]");
    if (emnist) {
      shape.insert(shape.begin() + 1, 1);
      static_cast<void>(set_shape(shape, images));
    }
    const ByteSource& source = open(split, false);
    StoredArray labels = classes_in(source);
    if (name == "emnist-letters") labels = from_zero(std::move(labels), source.name());
    ImageArrays arrays = image_arrays(folder.string(), std::move(images), std::move(labels));
    arrays.turned = emnist;
    splits.push_back({split, {std::move(arrays)}});
  }
  write_arrays(options, splits, characters_of(folder, name), text);
}

}  // namespace

bool has_idx_files(const std::string& folder) { return !sets_in(folder).empty(); }

void convert_idx_files(const ConvertOptions& options) {
  const std::map<std::string, IdxSet> sets = sets_in(options.source);
  std::string names;
  for (const auto& [name, set] : sets)
    names += (names.empty() ? "" : ", ") + (name.empty() ? "MNIST" : printable(name));
  const IdxSet& last = sets.rbegin()->second;
  require(sets.size() == 1, ExitCode::data, options.source, ": has several sets (", names,
          "); name a file of the one that is meant: ", convert_command(last.begin()->second.string()));
  convert_set(options, options.source, sets.begin()->first, sets.begin()->second);
}

bool is_idx(const std::string& file) { return read_name(fs::path(file).filename().string()).has_value(); }

std::vector<std::string> idx_files(const std::string& file) {
  const fs::path folder = folder_around(file);
  const std::string set = read_name(fs::path(file).filename().string())->set;
  std::vector<std::string> files = {mapping_of(folder, set).string()};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const auto name = read_name(entry.path().filename().string()); name && name->set == set)
      files.push_back(entry.path().string());
  return files;
}

void convert_idx(const ConvertOptions& options) {
  const fs::path folder = folder_around(options.source);
  const std::map<std::string, IdxSet> sets = sets_in(folder.string());
  const auto set = sets.find(read_name(fs::path(options.source).filename().string())->set);
  require(set != sets.end(), ExitCode::data, folder.string(),
          ": cannot be listed, and the other files of the set are looked for there; allow to read this folder");
  convert_set(options, folder, set->first, set->second);
}

}  // namespace dat
