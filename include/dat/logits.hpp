#pragma once

#include <cstdint>

#include "dat/tensor.hpp"

namespace dat {

/// The logits of n samples, and places for what a loss makes of them. Everything is on the device.
struct Logits {
  Device device;
  const float* values = nullptr;         ///< [n, classes]
  const std::int32_t* labels = nullptr;  ///< [n]
  int n = 0, classes = 0;
  float* loss = nullptr;      ///< [n]
  float* correct = nullptr;   ///< [n]: 1 where the largest logit is the label's, the first of equal ones; else 0
  float* gradient = nullptr;  ///< [n, classes]; null: not wanted
};

/// A loss of single samples: leaves loss, correctness, and the gradient of scale * (sum of the losses). Queued.
using SampleLoss = void(const Logits&, float scale);

/// Cross-entropy of the softmax.
void cross_entropy(const Logits& logits, float scale);

}  // namespace dat
