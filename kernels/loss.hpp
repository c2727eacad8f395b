#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// Cross-entropy of softmax, one sample per call: loss[i], correct[i] (1 where the largest logit is the label's; the
/// first of equal ones counts), and dlogits[i][k] = gradient_scale * (softmax_k - [k = label]) where dlogits is given.
struct SoftmaxCrossEntropy {
  const float* logits;         // [n, classes]
  const std::int32_t* labels;  // [n]
  float *loss, *correct, *dlogits;
  int classes;
  float gradient_scale;
  DAT_HD void operator()(std::int64_t i) const {
    const float* z = logits + i * classes;
    int best = 0;
    for (int k = 1; k < classes; ++k)
      if (z[k] > z[best]) best = k;
    float total = 0;
    for (int k = 0; k < classes; ++k) total += expf(z[k] - z[best]);
    const int label = labels[i];
    loss[i] = logf(total) - (z[label] - z[best]);
    correct[i] = best == label ? 1.0F : 0.0F;
    if (dlogits == nullptr) return;
    float* d = dlogits + i * classes;
    for (int k = 0; k < classes; ++k)
      d[k] = gradient_scale * (expf(z[k] - z[best]) / total - (k == label ? 1.0F : 0.0F));
  }
};

}  // namespace dat::kernels
