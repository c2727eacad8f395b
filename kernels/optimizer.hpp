#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// A value times its segment's factor; scale [segments] null: 1.
[[nodiscard]] DAT_HD inline float scaled(float value, const float* scale, int segment) {
  return scale != nullptr ? value * scale[segment] : value;
}

/// SGD with momentum and coupled weight decay, as torch.optim.SGD (dampening 0). `scale` [segments] multiplies the
/// gradient, `step_scale` [segments] the step; each may be null: 1.
struct SgdStep {
  float* theta;
  float* momentum;
  const float* gradient;
  const float *scale, *step_scale;
  float mu, weight_decay, lr;
  bool nesterov;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    const float g = scaled(gradient[i], scale, segment) + weight_decay * theta[i];
    momentum[i] = mu * momentum[i] + g;
    theta[i] -= scaled(lr, step_scale, segment) * (nesterov ? g + mu * momentum[i] : momentum[i]);
  }
};

/// First pass of LARS: momentum = mu*momentum + (scale*gradient + wd*theta). Sums: ||theta||^2, ||momentum||^2.
struct LarsDirection {
  const float* theta;
  float* momentum;
  const float* gradient;
  const float* scale;
  float mu, weight_decay;
  DAT_HD Sums operator()(int segment, std::int64_t i) const {
    const float u = mu * momentum[i] + (scaled(gradient[i], scale, segment) + weight_decay * theta[i]);
    momentum[i] = u;
    return {{double(theta[i]) * double(theta[i]), double(u) * double(u), 0}};
  }
};

/// Second pass of LARS: theta -= step[segment] * momentum.
struct LarsStep {
  float* theta;
  const float* momentum;
  const float* step;
  DAT_HD void operator()(int segment, std::int64_t i) const { theta[i] -= step[segment] * momentum[i]; }
};

/// u of LAMB without bias correction.
DAT_HD inline float lamb_direction(float m, float v, float theta, float epsilon, float weight_decay) {
  return m / (std::sqrt(v) + epsilon) + weight_decay * theta;
}

/// First pass of LAMB: moments m and v of scale*gradient. Sums: ||theta||^2, ||u||^2.
struct LambDirection {
  const float* theta;
  float* m;
  float* v;
  const float* gradient;
  const float* scale;
  float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
  DAT_HD Sums operator()(int segment, std::int64_t i) const {
    const float g = scaled(gradient[i], scale, segment);
    m[i] = beta1 * m[i] + one_minus_beta1 * g;
    v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
    const float u = lamb_direction(m[i], v[i], theta[i], epsilon, weight_decay);
    return {{double(theta[i]) * double(theta[i]), double(u) * double(u), 0}};
  }
};

/// Second pass of LAMB: theta -= step[segment] * u; u is computed again rather than stored.
struct LambStep {
  float* theta;
  const float* m;
  const float* v;
  const float* step;
  float epsilon, weight_decay;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    theta[i] -= step[segment] * lamb_direction(m[i], v[i], theta[i], epsilon, weight_decay);
  }
};

/// What the second pass multiplies u by: step = lr * ratio * factor, where ratio = clamp(||theta||, low, high) / ||u||,
/// or 1 where either of the two is zero. sums: ||theta||^2, ||u||^2 of each segment. factor [segments] may be null: 1.
/// Runs over the segments.
struct TrustRatio {
  const double* sums;
  const float* factor;
  float* step;
  double lr, low, high;
  DAT_HD void operator()(std::int64_t k) const {
    const double theta = std::sqrt(sums[k * kSums]), norm = std::sqrt(sums[k * kSums + 1]);
    const double tau = theta < low ? low : theta > high ? high : theta;
    const double ratio = tau != 0 && norm != 0 ? tau / norm : 1;
    step[k] = static_cast<float>(lr * ratio * (factor != nullptr ? double(factor[k]) : 1.0));
  }
};

}  // namespace dat::kernels
