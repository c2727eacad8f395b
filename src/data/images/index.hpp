#pragma once

#include <cstdint>

#include "hdf5/hdf5_reader.hpp"

namespace dat {

/// Record of an image in an index, 40 bytes in its file, little-endian: /SPLIT/records uint8 [n, 40]. The bytes of its
/// path lie in /SPLIT/names up to name_end, from that of the image before on.
struct ImageRecord {
  std::int64_t offset = 0;      ///< first of its bytes in the container
  std::uint64_t hash = 0;       ///< XXH3-64 of its bytes
  std::int64_t name_end = 0;    //
  std::int32_t container = -1;  ///< -1: a file of its own
  std::int32_t bytes = 0;
  std::uint16_t height = 0, width = 0;
  std::int16_t label = 0, unused = 0;
};
static_assert(sizeof(ImageRecord) == 40);

/// The most bytes of a file of an image, and those from which on no thread keeps memory for one.
constexpr std::int64_t kMostImageBytes = std::int64_t{1} << 28;
constexpr std::int64_t kLargeImageBytes = std::int64_t{1} << 24;

/// Returns whether a data file is an index.
[[nodiscard]] bool is_index(const Hdf5Reader& file);

}  // namespace dat
