// Arrays of NumPy under the names in use: one set of images, or training and test images.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/data_file.hpp"
#include "data/forms.hpp"

namespace dat {

namespace {

/// The names of a split's arrays.
struct Names {
  const char *images, *labels, *split;
};
// Keras (mnist.npz, and what others save like it), and MedMNIST (https://medmnist.com).
constexpr Names kNames[] = {
    {"x_train", "y_train", "train"},     {"x_val", "y_val", "val"},
    {"x_test", "y_test", "test"},        {"train_images", "train_labels", "train"},
    {"val_images", "val_labels", "val"}, {"test_images", "test_labels", "test"},
};

/// The arrays of each split that the file names; none where it names no splits. `text` becomes what they are called.
std::vector<SplitArrays> named_splits(const ByteSource& source, const ArrayFile& file, std::string& text) {
  const std::vector<std::string> names = file.names();
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  std::vector<SplitArrays> splits;
  for (const Names& row : kNames) {
    if (!has(row.images) && !has(row.labels)) continue;
    for (const char* name : {row.images, row.labels})
      require(has(name), ExitCode::data, source.name(), ": has ", has(row.images) ? row.images : row.labels,
              ", but no ", name);
    require(std::none_of(splits.begin(), splits.end(), [&](const auto& other) { return other.split == row.split; }),
            ExitCode::data, source.name(), ": has ", row.images, " beside other ", row.split,
            " images; leave one of them out");
    splits.push_back({row.split, {image_arrays(source.name(), file.array(row.images), file.array(row.labels))}});
    text += (text.empty() ? "" : ", ") + std::string(row.images);
  }
  return splits;
}

/// Takes the split of that name out.
std::optional<SplitArrays> take(std::vector<SplitArrays>& splits, const std::string& name) {
  const auto found =
      std::find_if(splits.begin(), splits.end(), [&](const SplitArrays& split) { return split.split == name; });
  if (found == splits.end()) return {};
  SplitArrays taken = std::move(*found);
  splits.erase(found);
  return taken;
}

}  // namespace

bool is_arrays(const std::string&) { return true; }  // the last form in the table: what is none is refused here

void convert_arrays(const ConvertOptions& options) {
  const auto source = open_bytes(options.source);
  const auto labels = options.labels.empty() ? nullptr : open_bytes(options.labels);
  const std::string file = std::filesystem::path(options.source).filename().string();
  std::string text;
  std::vector<SplitArrays> splits;
  if (labels == nullptr) splits = named_splits(*source, *open_arrays(*source), text);
  std::optional<SplitArrays> val = take(splits, "val");
  require(val || options.val == "leave", ExitCode::usage, options.source,
          ": has no validation images; leave --val off");
  if (splits.empty() && !val) {
    ImageArrays arrays = find_images(*source, labels.get());
    text = arrays.images.name + " and " + arrays.labels.name;
    splits.push_back({"train", {std::move(arrays)}});
    return write_arrays(options, splits, {}, "arrays " + text + " of " + file);
  }
  std::optional<SplitArrays> train = take(splits, "train"), test = take(splits, "test");
  require(train.has_value(), ExitCode::data, source->name(), ": has ", text, ", but no training images");
  require(test || options.val == "test", ExitCode::data, source->name(), ": has ", text,
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
  write_arrays(options, {std::move(*train), std::move(*test)}, {}, "arrays " + text + " of " + file + how);
}

void write_arrays(const ConvertOptions& options, const std::vector<SplitArrays>& splits,
                  const std::vector<std::string>& names, const std::string& source) {
  const ImageArrays& first = splits.front().parts.front();
  require(options.size == 0 || options.size == first.size, ExitCode::data, options.source, ": has images of ",
          first.size, " x ", first.size, ", not of ", options.size, "; leave --size off");
  require(names.empty() || options.classes == 0 || options.classes == std::ssize(names), ExitCode::data, options.source,
          ": names ", names.size(), " classes, but ", options.classes, " were asked for");
  DatasetInfo info;  // without names: the highest label tells, or, of extra images, the labelled set
  info.size = first.size;
  info.channels = first.channels;
  info.class_names = names;
  constexpr int kMostClasses = 256;
  const int classes = !names.empty()        ? static_cast<int>(names.size())
                      : options.classes > 0 ? options.classes
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
  write_sealed(options.output, [&](const std::string& temporary) {
    DataFileWriter writer(temporary, info, source);
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
    writer.close();
  });
}

}  // namespace dat
