// MNIST's files, and those of sets that come in its form (Fashion-MNIST, KMNIST).

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/arrays/inflate.hpp"
#include "data/forms.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

struct IdxType {
  std::uint8_t code;
  char kind;
  int bytes;
};
constexpr IdxType kTypes[] = {{0x08, 'u', 1}, {0x09, 'i', 1}, {0x0b, 'i', 2},
                              {0x0c, 'i', 4}, {0x0d, 'f', 4}, {0x0e, 'f', 8}};

bool is_gzip(const ByteSource& source) {
  std::array<std::uint8_t, 2> begin{};
  if (source.size() >= 2) source.read(0, begin.data(), 2);
  return begin[0] == 0x1f && begin[1] == 0x8b;
}

std::unique_ptr<InflateStream> inflated(const ByteSource& source) {
  return std::make_unique<InflateStream>(source, 0, source.size(), Wrapping::gzip, source.name());
}

/// The two files of a split, and a digit of each one's name: how many dimensions its array has.
struct IdxSplit {
  const char *split, *images, *labels;
};
constexpr IdxSplit kSplitFiles[] = {{"train", "train-images", "train-labels"}, {"test", "t10k-images", "t10k-labels"}};

/// That file under one of its names, as it is sooner than packed; empty where there is none.
fs::path idx_file(const fs::path& folder, const std::string& stem, const char* dims) {
  std::error_code error;
  for (const char* packed : {"", ".gz"})
    for (const std::string& form : {std::string("-idx") + dims + "-ubyte", std::string(".idx") + dims + "-ubyte",
                                    std::string("-idx") + dims + ".ubyte"})
      if (fs::path path = folder / (stem + form + packed); fs::is_regular_file(path, error)) return path;
  return {};
}

}  // namespace

// Two zero bytes, the type, the number of dimensions, the dimensions (four bytes each), the elements, all big-endian.
StoredArray open_idx(const ByteSource& source) {
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, ExitCode::data, source.name(), ": ", parts...);
  };
  const bool packed = is_gzip(source);
  const std::int64_t size = source.size();
  std::unique_ptr<ByteStream> stream = std::make_unique<PartStream>(source, 0, size);
  if (packed) stream = inflated(source);
  constexpr std::uint8_t kMostDims = 8;
  check(packed || size >= 4, "too short for an idx file");
  std::array<std::uint8_t, 4> begin{};
  stream->read(begin.data(), std::ssize(begin));
  StoredArray array;
  for (const IdxType& type : kTypes) {
    if (type.code != begin[2]) continue;
    array.kind = type.kind;
    array.item_bytes = type.bytes;
  }
  check(begin[0] == 0 && begin[1] == 0 && array.kind != 0 && begin[3] >= 1 && begin[3] <= kMostDims,
        "no idx file: its first four bytes are not two zeros, a type and a number of dimensions");
  array.name = fs::path(source.name()).filename().string();
  array.big_endian = true;
  const std::int64_t header = 4 + 4 * std::int64_t{begin[3]};
  check(packed || size >= header, "is cut off in its header");
  std::vector<std::int64_t> shape;
  for (int i = 0; i < begin[3]; ++i) {
    std::array<std::uint8_t, 4> digits{};
    stream->read(digits.data(), std::ssize(digits));
    std::int64_t dim = 0;
    for (const std::uint8_t digit : digits) dim = dim << 8 | digit;
    shape.push_back(dim);
  }
  check(set_shape(std::move(shape), array), "claims an impossible size");
  check(packed || array.bytes == size - header, "holds ", size - header, " bytes behind its header, but ", array.text(),
        " needs ", array.bytes, ": it is cut off or damaged");
  check(!packed || array.bytes / kMostGrowth <= size, "claims ", array.text(), ", which ", size,
        " packed bytes cannot hold: it is damaged");
  array.open = [&source, packed, header, bytes = array.bytes]() -> std::unique_ptr<ByteStream> {
    if (packed) return std::make_unique<InflatedPart>(inflated(source), header, bytes, 0);
    return std::make_unique<PartStream>(source, header, bytes);
  };
  return array;
}

bool has_idx_files(const std::string& folder) {
  for (const IdxSplit& files : kSplitFiles)
    if (!idx_file(folder, files.images, "3").empty() || !idx_file(folder, files.labels, "1").empty()) return true;
  return false;
}

void convert_idx_files(const ConvertOptions& options) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  std::vector<SplitArrays> splits;
  std::string text = "idx files";
  const auto open = [&](const char* stem, const char* dims) {
    const fs::path path = idx_file(options.source, stem, dims);
    require(!path.empty(), ExitCode::data, options.source, ": ", stem, "-idx", dims, "-ubyte is missing, and so is ",
            stem, "-idx", dims, "-ubyte.gz");
    text += " " + path.filename().string();
    sources.push_back(open_bytes(path.string()));
    return open_idx(*sources.back());
  };
  for (const IdxSplit& files : kSplitFiles) {
    StoredArray images = open(files.images, "3"), labels = open(files.labels, "1");
    splits.push_back({files.split, {image_arrays(options.source, std::move(images), std::move(labels))}});
  }
  write_arrays(options, splits, {}, text);
}

}  // namespace dat
