// Arrays in files of type idx: two zero bytes, the type, the number of dimensions, the dimensions (four bytes each),
// the elements, all big-endian.

#include <array>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"
#include "data/arrays/inflate.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

constexpr NumberType kTypes[] = {{0x08, 'u', 1}, {0x09, 'i', 1}, {0x0b, 'i', 2},
                                 {0x0c, 'i', 4}, {0x0d, 'f', 4}, {0x0e, 'f', 8}};

std::unique_ptr<InflateStream> inflated(const ByteSource& source) {
  return std::make_unique<InflateStream>(source, 0, source.size(), Wrapping::gzip, source.name());
}

}  // namespace

StoredArray open_idx(const ByteSource& source) {
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, ExitCode::data, source.name(), ": ", parts...);
  };
  const bool packed = beginning_of(source, 2) == "\x1f\x8b";
  const std::int64_t size = source.size();
  std::unique_ptr<ByteStream> stream = std::make_unique<PartStream>(source, 0, size);
  if (packed) stream = inflated(source);
  constexpr std::uint8_t kMostDims = 8;
  check(packed || size >= 4, "too short for an idx file");
  std::array<std::uint8_t, 4> begin{};
  stream->read(begin.data(), std::ssize(begin));
  StoredArray array;
  set_type(kTypes, begin[2], array);
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
  check(packed || array.bytes == size - header, "holds ", size - header, " bytes after its header, but ", array.text(),
        " needs ", array.bytes, ": it is cut off or damaged");
  check(!packed || array.bytes / kMostGrowth <= size, "claims ", array.text(), ", which ", size,
        " packed bytes cannot hold: it is damaged");
  array.open = [&source, packed, header, bytes = array.bytes]() -> std::unique_ptr<ByteStream> {
    if (packed) return std::make_unique<InflatedPart>(inflated(source), header, bytes, 0);
    return std::make_unique<PartStream>(source, header, bytes);
  };
  return array;
}

}  // namespace dat
