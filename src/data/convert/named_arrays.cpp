// Arrays of NumPy under the names in use: one set of images, or training and test images.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/convert/forms.hpp"
#include "data/data_file.hpp"

namespace dat {

namespace {

/// The names of a split's arrays.
struct Names {
  const char *images, *labels, *split;
  bool alone = false;  ///< true: the split may be the only one of a file
};
// Keras (mnist.npz, and what others save like it), users of scikit-learn, MedMNIST (https://medmnist.com), and data
// files of this program, which HDF5 may have in chunks or in another order.
constexpr Names kNames[] = {
    {"x_train", "y_train", "train"},
    {"x_val", "y_val", "val"},
    {"x_test", "y_test", "test"},
    {"X_train", "y_train", "train"},
    {"X_val", "y_val", "val"},
    {"X_test", "y_test", "test"},
    {"train_images", "train_labels", "train"},
    {"val_images", "val_labels", "val"},
    {"test_images", "test_labels", "test"},
    {"train/images", "train/labels", "train", true},
    {"val/images", "val/labels", "val", true},
    {"test/images", "test/labels", "test", true},
};

/// The arrays of each split that a file names; none where it names no splits.
struct NamedSplits {
  std::vector<SplitArrays> splits;
  std::string text;       ///< names of the arrays
  bool complete = false;  ///< true: no other split is to be expected
};

NamedSplits named_splits(const std::string& path, const ArrayFile& file) {
  const std::vector<std::string> names = file.names();
  const auto has = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  NamedSplits named;
  const auto taken = [&](const char* split) {
    return std::ranges::any_of(named.splits, [&](const auto& other) { return other.split == split; });
  };
  for (const Names& row : kNames) {
    if (!has(row.images)) continue;
    require(has(row.labels), ExitCode::data, path, ": has ", row.images, ", but no ", row.labels);
    require(!taken(row.split), ExitCode::data, path, ": has ", row.images, " beside other ", row.split,
            " images; leave one of them out");
    named.splits.push_back({row.split, {image_arrays(path, file.array(row.images), file.array(row.labels))}});
    named.text += (named.text.empty() ? "" : ", ") + std::string(row.images);
    named.complete = row.alone;
  }
  for (const Names& row : kNames)
    require(!has(row.labels) || taken(row.split), ExitCode::data, path, ": has ", row.labels, ", but no ", row.images);
  return named;
}

/// Takes the split of that name out.
std::optional<SplitArrays> take(std::vector<SplitArrays>& splits, const std::string& name) {
  const auto found = std::ranges::find_if(splits, [&](const SplitArrays& split) { return split.split == name; });
  if (found == splits.end()) return {};
  SplitArrays taken = std::move(*found);
  splits.erase(found);
  return taken;
}

}  // namespace

bool is_arrays(const std::string&) { return true; }  // the last form in the table: what is none is refused here

void convert_arrays(const ConvertOptions& options) {
  const auto source = open_bytes(options.source);
  if (options.labels.empty()) return convert_named(options, *open_arrays(*source), {}, "");
  require(options.val == "leave", ExitCode::usage, options.source, ": has no validation images; leave --val off");
  const auto labels = open_bytes(options.labels);
  ImageArrays arrays = image_arrays(options.source, open_npy(*source), open_npy(*labels));
  const std::string text = "arrays " + arrays.images.name + " and " + arrays.labels.name + " of ";
  write_arrays(options, {{"train", {std::move(arrays)}}}, {},
               text + std::filesystem::path(options.source).filename().string());
}

bool has_named(const ArrayFile& arrays) {
  const std::vector<std::string> names = arrays.names();
  const auto has = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  return has_images(arrays) || std::ranges::any_of(kNames, [&](const Names& row) { return has(row.images); });
}

void convert_named(const ConvertOptions& options, const ArrayFile& arrays, const std::vector<std::string>& names,
                   const std::string& origin) {
  const std::string& path = options.source;
  const auto from = [&](const std::string& text) {
    return origin.empty() ? "arrays " + text + " of " + std::filesystem::path(path).filename().string() : origin;
  };
  auto [splits, text, complete] = named_splits(path, arrays);
  std::optional<SplitArrays> val = take(splits, "val");
  require(val || options.val == "leave", ExitCode::usage, path, ": has no validation images; leave --val off");
  if (splits.empty() && !val) {
    ImageArrays found = find_images(path, arrays);
    text = found.images.name + " and " + found.labels.name;
    splits.push_back({"train", {std::move(found)}});
    return write_arrays(options, splits, names, from(text));
  }
  std::optional<SplitArrays> train = take(splits, "train"), test = take(splits, "test");
  require(train || (complete && test && options.val != "train"), ExitCode::data, path, ": has ", text,
          ", but no training images");
  require(test || complete || options.val == "test", ExitCode::data, path, ": has ", text,
          ", but no test images; extra images alone are called images and labels");
  std::string how;
  if (val && options.val == "train") {
    train->parts.push_back(std::move(val->parts.front()));
    how = ", the validation images among the training images";
  } else if (val && options.val == "test") {
    test = SplitArrays{"test", std::move(val->parts)};
    how = ", the validation images in place of the test images";
  } else if (val) {
    how = ", without the " + std::to_string(val->parts.front().count) + " validation images";
  }
  for (std::optional<SplitArrays>* split : {&train, &test})
    if (*split) splits.push_back(std::move(**split));
  write_arrays(options, splits, names, from(text) + how);
}

void write_arrays(const ConvertOptions& options, const std::vector<SplitArrays>& splits,
                  const std::vector<std::string>& names, const std::string& source) {
  const ImageArrays& first = splits.front().parts.front();
  require(options.size == 0 || options.size == first.size, ExitCode::data, options.source, ": has images of ",
          first.size, " x ", first.size, ", not of ", options.size, "; leave --size off");
  require(names.empty() || options.classes == 0 || options.classes == std::ssize(names), ExitCode::data, options.source,
          ": names ", names.size(), " classes, but ", options.classes, " were asked for");
  require(names.empty() || (names.size() >= 2 && names.size() <= kMostClasses), ExitCode::data, options.source,
          ": names ", names.size(), names.size() == 1 ? " class" : " classes", ", must be 2 to ", kMostClasses);
  DatasetInfo info;  // without names: the highest label says, or, of extra images, the labelled set
  info.size = first.size;
  info.channels = first.channels;
  info.class_names = names;
  const int classes = !names.empty()         ? static_cast<int>(names.size())
                      : options.classes != 0 ? options.classes
                                             : kMostClasses;
  std::vector<std::vector<std::int16_t>> labels;
  for (const SplitArrays& split : splits) {
    for (const ImageArrays& part : split.parts) {
      require(part.size == first.size && part.channels == first.channels, ExitCode::data, part.file, ": ",
              part.images.name, " is ", part.images.text(), ", but the first images are ", first.size, " x ",
              first.size, " x ", first.channels);
      labels.push_back(read_labels(part, classes, split.split == "test" ? 0 : -1));
    }
  }
  write_data_file(options.output, info, source, [&](DataFileWriter& writer) {
    auto part_labels = labels.begin();
    for (const SplitArrays& split : splits) {
      std::int64_t samples = 0;
      for (const ImageArrays& part : split.parts) samples += part.count;
      writer.begin(split.split, samples);
      for (const ImageArrays& part : split.parts) {
        auto next = part_labels++->begin();
        read_images(part, [&](const std::vector<std::uint8_t>& pixels) {
          const auto end = next + std::ssize(pixels) / static_cast<std::int64_t>(info.image_bytes());
          writer.add(pixels, {next, end});
          next = end;
        });
      }
      writer.end();
    }
  });
}

}  // namespace dat
