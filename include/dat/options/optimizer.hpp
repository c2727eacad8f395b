#pragma once

#include <string>

#include "dat/optimizer.hpp"

namespace dat {

/// How a gradient becomes a step, and what becomes of the weights over the steps. Rows and rules:
/// src/options/train/optimizer.cpp.
struct OptimizerSettings : OptimizerOptions {
  std::string optimizer = "lamb";
  double peak_momentum = -1;        ///< where the rate peaks, and `momentum` at its ends; -1: the same throughout
  std::string average = "none";     ///< of the weights: none | one of average_rules()
  double average_decay = 0.995;     ///< ema
  int average_from = 0;             ///< epochs until averaging begins, those of the warm-up included
  std::string average_bn = "auto";  ///< its batch statistics: raw | rebuild | ema; never auto in a parsed command

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

}  // namespace dat
