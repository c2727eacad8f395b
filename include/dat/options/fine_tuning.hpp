#pragma once

#include <string>

#include "dat/by_epoch.hpp"

namespace dat {

/// Training of a part of a network that has been trained before. Rows and rules: src/options/train/fine_tuning.cpp.
struct FineTuningSettings {
  int new_head = 0;  ///< classes of a last layer that begins anew, whatever the file of `initialize` has; 0: none
  /// Frozen part, in the form of frozen_segments(), or none; none may follow, from an epoch on.
  ByEpoch<std::string> freeze{"none"};
  double head_lr = 0;  ///< learning rate of the last layer where the others have `lr`; 0: the same

  /// Returns whether anything is frozen at first.
  [[nodiscard]] bool freezes() const { return frozen() != "none"; }
  [[nodiscard]] const std::string& frozen() const { return freeze.parts().front().value; }
  /// Epochs until everything is trained, those of the warm-up included; 0: in the whole run not.
  [[nodiscard]] int frozen_epochs() const { return freeze.parts().back().from; }

  friend bool operator==(const FineTuningSettings&, const FineTuningSettings&) = default;
};

}  // namespace dat
