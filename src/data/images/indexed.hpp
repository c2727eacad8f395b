#pragma once

#include <memory>
#include <string>

#include "dat/dataset.hpp"
#include "data/images/index.hpp"

namespace dat {

struct IndexedOptions {
  int size = 0;       ///< height = width of what the network sees
  bool fast = false;  ///< JPEG made smaller by its transform
};

/// The images of an index, read where they lie. Heads and labels are read at once, an image, whose hash is checked,
/// when it is asked for. Error(data): the index or an image is damaged, has moved or changed.
[[nodiscard]] std::unique_ptr<Dataset> open_index(const Hdf5Reader& file, const std::string& split,
                                                  const IndexedOptions& options);

}  // namespace dat
