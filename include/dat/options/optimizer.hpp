#pragma once

#include <string>

#include "dat/by_epoch.hpp"
#include "dat/optimizer.hpp"

namespace dat {

/// Optimizer, and average of the weights over the steps. Rows and rules: src/options/train/optimizer.cpp.
struct OptimizerSettings : OptimizerOptions {
  std::string optimizer = "lamb";
  double peak_momentum =
      -1;  ///< momentum where the rate peaks, which is `momentum` at its ends; -1: the same throughout
  ByEpoch<std::string> average{
      "none"};                      ///< average of the weights: none | one of average_rules(); none may stand before it
  double average_decay = 0.995;     ///< ema
  std::string average_bn = "auto";  ///< its batch statistics: raw | rebuild | ema; never auto in a parsed command

  /// Epochs until averaging begins, those of the warm-up included.
  [[nodiscard]] int average_from() const { return average.parts().back().from; }

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

}  // namespace dat
