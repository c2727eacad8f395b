#pragma once

#include <string>

namespace dat {

/// Which layers a step trains. Rows and rules: src/options/train/jointspar.cpp.
struct JointSparSettings {
  std::string selector = "exp3";
  double budget = 0;                   ///< mean number of active layers; 0: 40/54 of the layers
  std::string budget_unit = "layers";  ///< layers | bytes | seconds
  double p_min = 0.1;
  std::string granularity = "tensor";     ///< tensor | module | block
  std::string resample = "step";          ///< step | epoch | a number of steps
  std::string mask = "shared";            ///< shared: all ranks train the same layers | per_worker: each draws its own
  std::string bandit_loss = "selfnorm";   ///< one of bandit_losses()
  double bandit_rate = 0;                 ///< 0: the loss's own
  double freeze_t0 = 0.8;                 ///< freezeout
  std::string freeze_schedule = "cubic";  ///< freezeout: linear | squared | cubic
  std::string freeze_lr = "scaled";       ///< freezeout: scaled | unscaled | constant
  double freeze_percentile = 50;          ///< autofreeze

  friend bool operator==(const JointSparSettings&, const JointSparSettings&) = default;
};

}  // namespace dat
