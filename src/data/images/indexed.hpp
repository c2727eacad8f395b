#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {

/// The images of one split of one file, and what all of its splits say of the classes.
struct OpenedFile {
  std::unique_ptr<Dataset> images;       ///< null: the file has no such split
  std::vector<std::string> class_names;  ///< empty: the file names none
  int highest = 1;                       ///< label
};

/// The names of classes in the dataset /class_names uint8, one a line. Error(data): it has more than a file may name.
[[nodiscard]] std::vector<std::string> listed_class_names(const Hdf5Reader& file);

/// The folder in which the images of an index, or their containers, are.
[[nodiscard]] std::string folder_of_index(const Hdf5Reader& file);

/// The names of an index's containers, a zero after each. Error(data): they are not as many as their sizes.
[[nodiscard]] std::string container_names(const Hdf5Reader& file);

/// Opens a split of an index: its images are read where they lie. Heads and labels are read at once, an image, whose
/// hash is checked, when it is asked for. may_lack: "test" need not be there. Error(data): the index or an image is
/// damaged, has moved or changed. Error(usage): images of several shapes, and no size is said.
[[nodiscard]] OpenedFile open_index(const Hdf5Reader& file, const std::string& split, bool may_lack,
                                    const Sight& sight);

}  // namespace dat
