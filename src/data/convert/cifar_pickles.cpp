// CIFAR's Python version, as Krizhevsky published it and torchvision leaves it: dictionaries of Python 2, pickled.
// Source: https://www.cs.toronto.edu/~kriz/cifar.html

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/convert/forms.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

struct Version {
  std::vector<std::string> train;  ///< files, in their order
  std::string test, meta, labels, names;
  int classes;
};

const Version kCifar10 = {{"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
                          "test_batch",
                          "batches.meta",
                          "labels",
                          "label_names",
                          10};
const Version kCifar100 = {{"train"}, "test", "meta", "fine_labels", "fine_label_names", 100};

bool has_version(const fs::path& folder, const Version& version) {
  return has_file(folder, version.test) ||
         std::ranges::any_of(version.train, [&](const auto& name) { return has_file(folder, name); });
}

/// The bytes of an array [rows, columns] that lies column by column, row by row. Takes its size of memory.
class RowStream final : public ByteStream {
 public:
  RowStream(ByteStream& columns, std::int64_t rows, std::int64_t width)
      : bytes_(static_cast<std::size_t>(rows * width)), rows_(rows), width_(width) {
    columns.read(bytes_.data(), std::ssize(bytes_));
  }
  void read(void* to, std::int64_t bytes) override {
    auto* out = static_cast<std::uint8_t*>(to);
    for (std::int64_t i = 0; i < bytes; ++i, ++at_)
      out[i] = bytes_[static_cast<std::size_t>(at_ % width_ * rows_ + at_ / width_)];
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::int64_t rows_, width_, at_ = 0;
};

/// uint8 [n, 3072], the planes of 32 x 32 pixels, as [n, 3, 32, 32].
StoredArray as_planes(const std::string& file, StoredArray images) {
  static constexpr std::int64_t kSize = 32, kWidth = 3 * kSize * kSize;
  require(images.kind == 'u' && images.item_bytes == 1 && images.shape.size() == 2 && images.shape[1] == kWidth,
          ExitCode::data, file, ": ", images.name, " is ", images.text(), ", but must be uint8 [n, ", kWidth, "]");
  const std::int64_t count = images.shape[0];
  if (std::exchange(images.column_major, false))
    images.open = [open = images.open, count] { return std::make_unique<RowStream>(*open(), count, kWidth); };
  static_cast<void>(set_shape({count, 3, kSize, kSize}, images));
  return images;
}

std::vector<std::string> class_names(const fs::path& folder, const Version& version) {
  if (!has_file(folder, version.meta))
    return version.classes == 10 ? cifar10_names() : numbered_classes(version.classes);
  const auto source = open_bytes((folder / version.meta).string());
  std::vector<std::string> names = open_pickle(*source)->words(version.names);
  require(std::ssize(names) == version.classes, ExitCode::data, source->name(), ": names ", names.size(),
          " classes, must be ", version.classes);
  return names;
}

}  // namespace

bool has_file(const fs::path& folder, const std::string& name) {
  std::error_code error;
  return fs::is_regular_file(folder / name, error);
}

bool has_cifar_pickles(const std::string& folder) {
  return has_version(folder, kCifar10) || has_version(folder, kCifar100);
}

void convert_cifar_pickles(const ConvertOptions& options) {
  const fs::path folder = options.source;
  const bool cifar10 = has_version(folder, kCifar10), cifar100 = has_version(folder, kCifar100);
  require(!cifar10 || !cifar100, ExitCode::data, options.source,
          ": has files of CIFAR-10 and of CIFAR-100; give each a folder of its own");
  const Version& version = cifar10 ? kCifar10 : kCifar100;
  std::vector<std::unique_ptr<ByteSource>> sources;
  std::string text = "pickles";
  const auto open = [&](const std::string& name) {
    require(has_file(folder, name), ExitCode::data, options.source, ": ", name, " is missing");
    text += " " + name;
    sources.push_back(open_bytes((folder / name).string()));
    const auto file = open_pickle(*sources.back());
    const std::string& path = sources.back()->name();
    return image_arrays(path, as_planes(path, file->array("data")), file->array(version.labels));
  };
  SplitArrays train{"train", {}}, test{"test", {}};
  for (const std::string& name : version.train) train.parts.push_back(open(name));
  test.parts.push_back(open(version.test));
  write_arrays(options, {train, test}, class_names(folder, version), text);
}

}  // namespace dat
