#pragma once

#include <string>

#include "dat/by_epoch.hpp"

namespace dat {

/// Loss on training images. Rows and rules: src/options/train/attack.cpp, in the group of the attack.
struct LossSettings {
  std::string loss = "cross_entropy";
  double lambda = -1;             ///< weight of the clean loss; never -1 in a parsed command
  double beta = -1;               ///< weight of the term of two predictions; -1: the loss's own
  bool detach_reference = false;  ///< pgi, gat, nuat: what attacked predictions are compared with is a constant
  double label_smoothing = 0;     ///< smoothing of the cross-entropies' labels
  ByEpoch<double> awp_gamma = 0;  ///< perturbation of the weights, as a part of their norm; 0: none
  std::string awp = "global";     ///< global: along the gradient of all ranks | local: each rank along its own

  friend bool operator==(const LossSettings&, const LossSettings&) = default;
};

}  // namespace dat
