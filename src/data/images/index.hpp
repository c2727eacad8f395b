#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "data/images/image.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {

/// What an index has of an image, 40 bytes in its file, little-endian: /SPLIT/records uint8 [n, 40]. The bytes of its
/// path lie in /SPLIT/names up to name_end, from that of the image before on.
struct ImageRecord {
  std::int64_t offset = 0;      ///< where its bytes begin in the container
  std::uint64_t hash = 0;       ///< XXH3-64 of its bytes
  std::int64_t name_end = 0;    //
  std::int32_t container = -1;  ///< -1: a file of its own
  std::int32_t bytes = 0;
  std::uint16_t height = 0, width = 0;
  std::int16_t label = 0, unused = 0;
};
static_assert(sizeof(ImageRecord) == 40);

struct IndexOptions {
  std::string source, output;
  int threads = 1;
  bool skip_damage = false;  ///< damaged images are left out, else the index is refused
};

/// What an index holds, and what was wrong with images: "PATH: why".
struct Indexed {
  std::int64_t train = 0, test = 0, others = 0;
  std::vector<std::string> class_names, damage;
};

/// Reads and decodes every image of a source (members.hpp) once, and writes the index: a sealed file of what there is,
/// and where. Equal at any number of threads. Error(data): a damaged image, all of which the message lists, up to some;
/// Error(io).
Indexed write_index(const IndexOptions& options);

/// Whether a data file is an index.
[[nodiscard]] bool is_index(const Hdf5Reader& file);

}  // namespace dat
