#pragma once

#include <cstdint>
#include <string>

namespace dat {

/// What of a network that has been trained before is trained on. Rows and rules: src/options/train/fine_tuning.cpp.
struct FineTuningSettings {
  int new_head = 0;       ///< classes of a last layer that begins anew, whatever the file of `initialize` has; 0: none
  std::string freeze;     ///< as frozen_segments() takes it; empty: everything is trained
  int freeze_epochs = 0;  ///< epochs until everything is trained, those of the warm-up included; 0: in the whole run
  double head_lr = 0;     ///< learning rate of the last layer where the others have `lr`; 0: the same

  friend bool operator==(const FineTuningSettings&, const FineTuningSettings&) = default;
};

}  // namespace dat
