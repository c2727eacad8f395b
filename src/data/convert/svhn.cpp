// Street View House Numbers, cropped digits: train_32x32.mat, test_32x32.mat and extra_32x32.mat.
// Source: http://ufldl.stanford.edu/housenumbers/

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

constexpr const char *kTrain = "train_32x32.mat", *kTest = "test_32x32.mat";
constexpr int kDigits = 10;

/// X [32, 32, 3, n] and y [n, 1] of MATLAB's order.
ImageArrays digits_in(const ByteSource& source) {
  const auto file = open_mat(source);
  StoredArray labels = file->array("y");
  const std::vector<std::int64_t> shape = labels.shape;
  require(shape.size() == 2 && std::min(shape[0], shape[1]) == 1, ExitCode::data, source.name(), ": y is ",
          labels.text(), ", but must be uint8 [1, n]");
  static_cast<void>(set_shape({std::max(shape[0], shape[1])}, labels));
  labels = changed(std::move(labels), source.name(),  // 10 stands for the digit 0
                   [](std::uint8_t label) { return label == kDigits ? std::uint8_t{0} : label; });
  ImageArrays arrays = image_arrays(source.name(), file->array("X"), std::move(labels));
  require(arrays.channels_first, ExitCode::data, source.name(), ": X is ", arrays.images.text(),
          ", but must be uint8 [n, channels, size, size], that is [size, size, channels, n] for MATLAB");
  arrays.turned = true;
  return arrays;
}

void write_digits(const ConvertOptions& options, const std::vector<std::pair<const char*, fs::path>>& files) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  std::vector<SplitArrays> splits;
  std::string text = "MATLAB files";
  for (const auto& [split, path] : files) {
    sources.push_back(open_bytes(path.string()));
    splits.push_back({split, {digits_in(*sources.back())}});
    text += " " + path.filename().string();
  }
  std::vector<std::string> names;
  for (int digit = 0; digit < kDigits; ++digit) names.push_back(std::to_string(digit));
  write_arrays(options, splits, names, text);
}

}  // namespace

bool has_svhn(const std::string& folder) { return has_file(folder, kTrain) || has_file(folder, kTest); }

void convert_svhn(const ConvertOptions& options) {
  const fs::path folder = options.source;
  for (const char* name : {kTrain, kTest})
    require(fs::exists(folder / name), ExitCode::data, options.source, ": ", name, " is missing");
  write_digits(options, {{"train", folder / kTrain}, {"test", folder / kTest}});
}

bool is_mat(const std::string& file) {
  constexpr std::string_view kBegin = "MATLAB 5.0";
  return beginning_of(*open_bytes(file), std::ssize(kBegin)) == kBegin;
}

void convert_mat(const ConvertOptions& options) { write_digits(options, {{"train", options.source}}); }

}  // namespace dat
