#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// Adversarial weight perturbation: how far each segment moves along its gradient g, gamma * ||theta|| / ||g||; 0 where
/// it is not `perturbed`, or g is zero; NaN where g is not finite, which the training pass at these weights then shows.
/// sums: ||theta||^2, ||g||^2 of each segment. Runs over the segments.
struct PerturbationFactor {
  const double* sums;
  const std::uint8_t* perturbed;
  float* factor;
  double gamma;
  DAT_HD void operator()(std::int64_t k) const {
    const double theta = std::sqrt(sums[k * kSums]), g = std::sqrt(sums[k * kSums + 1]);
    const double finite = g - g == 0 ? g : g - g;  // or NaN
    factor[k] = perturbed[k] != 0 && g != 0 ? static_cast<float>(gamma * theta / finite) : 0.0F;
  }
};

/// kept = theta, theta += factor*gradient; gradient = theta as it is then. Segments with the factor 0 stand still.
struct PerturbWeights {
  float *theta, *gradient, *kept;
  const float* factor;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    if (factor[segment] == 0.0F) return;
    kept[i] = theta[i];
    theta[i] += factor[segment] * gradient[i];
    gradient[i] = theta[i];
  }
};

/// theta = other, of segments that have moved.
struct MoveWeights {
  float* theta;
  const float* other;
  const float* factor;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    if (factor[segment] != 0.0F) theta[i] = other[i];
  }
};

/// theta = kept + (theta - perturbed): what has changed since the weights were `perturbed` is done to those that were
/// `kept`, of segments that have moved.
struct ReturnWeights {
  float* theta;
  const float *kept, *perturbed;
  const float* factor;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    if (factor[segment] != 0.0F) theta[i] = kept[i] + (theta[i] - perturbed[i]);
  }
};

/// Copy: to = from.
struct CopyWords {
  const std::int32_t* from;
  std::int32_t* to;
  DAT_HD void operator()(std::int64_t i) const { to[i] = from[i]; }
};

}  // namespace dat::kernels
