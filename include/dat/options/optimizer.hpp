#pragma once

#include <string>

namespace dat {

/// How a gradient becomes a step, and what becomes of the weights over the steps. Rows and rules:
/// src/options/train/optimizer.cpp.
struct OptimizerSettings {
  std::string optimizer = "lamb";
  double lr = 0.01;
  double momentum = 0.9;
  double peak_momentum = -1;              ///< where the rate peaks, and `momentum` at its ends; -1: the same throughout
  bool nesterov = false;                  ///< sgd
  double beta1 = 0.9, beta2 = 0.999;      ///< lamb
  double epsilon = 1e-6;                  ///< lamb
  bool bias_correction = false;           ///< lamb
  double weight_decay = -1;               ///< -1: the optimizer's own
  std::string no_decay = "none";          ///< none | norms: what weight decay leaves out
  double trust_coefficient = 1e-3;        ///< lars_sgd
  double clamp_low = 0, clamp_high = 10;  ///< of the weight norm in the trust ratio of lars and lamb
  double clip_norm = 0;                   ///< largest norm of the gradient; 0: any
  std::string importance = "inside";      ///< inside | outside
  std::string average = "none";           ///< of the weights: none | one of average_rules()
  double average_decay = 0.995;           ///< ema
  int average_from = 0;                   ///< epochs until averaging begins, those of the warm-up included
  std::string average_bn = "auto";        ///< its batch statistics: raw | rebuild | ema; never auto in a parsed command

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

}  // namespace dat
