#pragma once

#include <string>

#include "data/data_file.hpp"

namespace dat {

/// Opens a split of an index: its images are read where they lie. Heads and labels are read at once, an image, whose
/// hash is checked, when it is asked for. may_lack: "test" need not be there. Error(data): the index or an image is
/// damaged, has moved or changed. Error(usage): images of several shapes, and no size is said.
[[nodiscard]] OpenedFile open_index(const Hdf5Reader& file, const std::string& split, bool may_lack,
                                    const Sight& sight);

}  // namespace dat
