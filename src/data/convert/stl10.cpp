// STL-10's binary version. Its 100,000 images without labels are left where they are.
// Source: https://cs.stanford.edu/~acoates/stl10/

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

constexpr int kPixels = 96, kChannels = 3;
const char* const kClassNames = "class_names.txt";

/// The bytes of a file as an array [n, ...] of such rows.
StoredArray bytes_of(const ByteSource& source, std::vector<std::int64_t> row) {
  StoredArray array;
  array.name = fs::path(source.name()).filename().string();
  array.kind = 'u';
  array.item_bytes = 1;
  std::int64_t bytes = 1;
  for (const std::int64_t extent : row) bytes *= extent;
  require(source.size() > 0 && source.size() % bytes == 0, ExitCode::data, source.name(), ": has ", source.size(),
          " bytes, which is no positive multiple of ", bytes, ": it is cut off or damaged");
  row.insert(row.begin(), source.size() / bytes);
  static_cast<void>(set_shape(std::move(row), array));
  array.open = [&source] { return std::make_unique<PartStream>(source, 0, source.size()); };
  return array;
}

}  // namespace

bool has_stl10(const std::string& folder) { return has_file(folder, "train_X.bin") || has_file(folder, "test_X.bin"); }

void convert_stl10(const ConvertOptions& options) {
  const fs::path folder = options.source;
  std::vector<std::unique_ptr<ByteSource>> sources;
  std::vector<SplitArrays> splits;
  const auto open = [&](const std::string& name) -> const ByteSource& {
    require(fs::exists(folder / name), ExitCode::data, options.source, ": ", name, " is missing");
    return *sources.emplace_back(open_bytes((folder / name).string()));
  };
  for (const std::string split : {"train", "test"}) {
    StoredArray images = bytes_of(open(split + "_X.bin"), {kChannels, kPixels, kPixels});
    const ByteSource& labels = open(split + "_y.bin");
    ImageArrays arrays =
        image_arrays(options.source, std::move(images), from_zero(bytes_of(labels, {}), labels.name()));
    arrays.turned = true;
    splits.push_back({split, {std::move(arrays)}});
  }
  std::vector<std::string> names = names_in_file((folder / kClassNames).string());
  if (names.empty()) names = {"airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"};
  write_arrays(options, splits, names, "STL-10's train_X.bin test_X.bin");
}

}  // namespace dat
