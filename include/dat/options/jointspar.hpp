#pragma once

#include <string>

namespace dat {

/// Mean number of active layers, of so many, where none is named.
[[nodiscard]] constexpr double default_budget(double layers) { return layers * 40.0 / 54.0; }

/// Which layers a step trains. Rows and rules: src/options/train/jointspar.cpp.
struct JointSparSettings {
  std::string selector = "exp3";
  double budget = 0;                   ///< mean number of active layers; 0: default_budget() of them
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
