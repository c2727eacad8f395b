#pragma once

#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/dataset.hpp"

namespace dat {

/// A network's classes, as its head and its training data name them.
struct Classes {
  int count = 0;
  std::vector<std::string> names;  ///< empty: unknown

  [[nodiscard]] std::string name(int label) const;
};

/// The classes of a checkpoint's network; `path` names the checkpoint in messages. Error(checkpoint): there is none.
[[nodiscard]] Classes classes_of(const Checkpoint& checkpoint, const std::string& path);

/// Error(data): accuracy on these images would mean nothing, because they are of other classes, or have another size or
/// number of channels, than those that the checkpoint's network was trained on.
void require_fitting_images(const DatasetInfo& info, const Checkpoint& checkpoint, const Classes& classes,
                            const std::string& path);

}  // namespace dat
