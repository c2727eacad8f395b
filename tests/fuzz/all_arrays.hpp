#pragma once

#include <algorithm>
#include <vector>

#include "data/arrays/arrays.hpp"
#include "fuzz/targets.hpp"

namespace dat::fuzz {

/// Reads what an array claims, as far as it goes.
inline void read_array(const StoredArray& array) {
  constexpr std::int64_t kEnough = 8 << 20, kBlock = 1 << 16;
  static_cast<void>(array.text());
  const auto stream = array.open();
  std::vector<std::uint8_t> block(kBlock);
  for (std::int64_t left = std::min(array.bytes, kEnough); left > 0; left -= kBlock)
    stream->read(block.data(), std::min(left, kBlock));
}

/// All arrays of a file, and the images and labels among them.
inline void read_file(const ByteSource& source, const ArrayFile& file) {
  for (const std::string& name : file.names()) {
    answered([&] { read_array(file.array(name)); });
    answered([&] { static_cast<void>(file.words(name)); });
  }
  const ImageArrays arrays = find_images(source.name(), *open_arrays(source));
  static_cast<void>(read_labels(arrays, 256));
  read_images(arrays, [](const auto&) {});
}

}  // namespace dat::fuzz
