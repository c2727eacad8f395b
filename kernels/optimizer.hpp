#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// A value times its segment's factor; scale [segments] null: 1.
[[nodiscard]] DAT_HD inline float scaled(float value, const float* scale, int segment) {
  return scale != nullptr ? value * scale[segment] : value;
}

/// Factors that clip the norm of all segments' gradients together, as torch.nn.utils.clip_grad_norm_ does:
/// clipped = factor * min(1, limit / (norm + 1e-6)), norm^2 = sum of (factor*||gradient||)^2 over the segments. sums:
/// ||gradient||^2 of each segment, 0 of those that are not active. factor [segments] may be null: 1. Runs over the
/// segments.
struct ClipFactor {
  const double* sums;
  const float* factor;
  float* clipped;
  std::int64_t segments;
  double limit;
  DAT_HD void operator()(std::int64_t k) const {
    double square = 0;
    for (std::int64_t j = 0; j < segments; ++j) {
      const double f = factor != nullptr ? double(factor[j]) : 1.0;
      square += f * f * sums[j * kSums];
    }
    const double part = smaller(limit / (std::sqrt(square) + 1e-6), 1.0);
    clipped[k] = static_cast<float>((factor != nullptr ? double(factor[k]) : 1.0) * part);
  }
};

/// SGD with momentum and coupled weight decay, as torch.optim.SGD (dampening 0). `scale` [segments] multiplies the
/// gradient, `step_scale` [segments] the step; each may be null: 1. decay [segments]: the weight decay of each.
struct SgdStep {
  float* theta;
  float* momentum;
  const float* gradient;
  const float *scale, *step_scale, *decay;
  float mu, lr;
  bool nesterov;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    const float g = scaled(gradient[i], scale, segment) + decay[segment] * theta[i];
    momentum[i] = mu * momentum[i] + g;
    theta[i] -= scaled(lr, step_scale, segment) * (nesterov ? g + mu * momentum[i] : momentum[i]);
  }
};

/// First pass of LARS: momentum = mu*momentum + (scale*gradient + decay*theta). Sums: ||theta||^2, ||momentum||^2.
struct LarsDirection {
  const float* theta;
  float* momentum;
  const float* gradient;
  const float *scale, *decay;
  float mu;
  DAT_HD Sums operator()(int segment, std::int64_t i) const {
    const float u = mu * momentum[i] + (scaled(gradient[i], scale, segment) + decay[segment] * theta[i]);
    momentum[i] = u;
    return {{double(theta[i]) * double(theta[i]), double(u) * double(u)}};
  }
};

/// Second pass of LARS: theta -= step[segment] * momentum.
struct LarsStep {
  float* theta;
  const float* momentum;
  const float* step;
  DAT_HD void operator()(int segment, std::int64_t i) const { theta[i] -= step[segment] * momentum[i]; }
};

/// First pass of SGD with LARS. Sums: ||theta||^2, ||scale*gradient||^2.
struct LarsSgdNorms {
  const float* theta;
  const float* gradient;
  const float* scale;
  DAT_HD Sums operator()(int segment, std::int64_t i) const {
    const double g = scaled(gradient[i], scale, segment);
    return {{double(theta[i]) * double(theta[i]), g * g}};
  }
};

/// The learning rate of each segment in SGD with LARS: rate = lr * local, where
/// local = trust * ||theta|| / (||g|| + weight_decay * ||theta||), or 1 where ||theta|| or the denominator is zero and
/// where the segment is not `adapted`. sums: ||theta||^2, ||g||^2 of each segment. Runs over the segments.
struct LocalRate {
  const double* sums;
  const std::uint8_t* adapted;
  float* rate;
  double lr, trust, weight_decay;
  DAT_HD void operator()(std::int64_t k) const {
    const double theta = std::sqrt(sums[k * kSums]), g = std::sqrt(sums[k * kSums + 1]);
    const double below = g + weight_decay * theta;
    const double local = adapted[k] != 0 && theta != 0 && below != 0 ? trust * theta / below : 1;
    rate[k] = static_cast<float>(lr * local);
  }
};

/// Second pass of SGD with LARS: momentum = mu*momentum + rate*(scale*gradient + wd*theta), theta -= momentum times
/// step_scale; wd is 0 where the segment is not `adapted`.
struct LarsSgdStep {
  float* theta;
  float* momentum;
  const float* gradient;
  const float *scale, *step_scale;
  const float* rate;
  const std::uint8_t* adapted;
  float mu, weight_decay;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    const float decay = adapted[segment] != 0 ? weight_decay : 0.0F;
    momentum[i] = mu * momentum[i] + rate[segment] * (scaled(gradient[i], scale, segment) + decay * theta[i]);
    theta[i] -= scaled(momentum[i], step_scale, segment);
  }
};

/// u of LAMB.
DAT_HD inline float lamb_direction(float m, float v, float theta, float epsilon, float weight_decay) {
  return m / (std::sqrt(v) + epsilon) + weight_decay * theta;
}

/// First pass of LAMB: moments m and v of scale*gradient. Sums: ||theta||^2, ||u||^2. m_correction, v_correction
/// [segments]: what m and v are multiplied by in u, 1/(1 - beta^t); null: 1.
struct LambDirection {
  const float* theta;
  float* m;
  float* v;
  const float* gradient;
  const float* scale;
  const float *m_correction, *v_correction, *decay;
  float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  DAT_HD Sums operator()(int segment, std::int64_t i) const {
    const float g = scaled(gradient[i], scale, segment);
    m[i] = beta1 * m[i] + one_minus_beta1 * g;
    v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
    const float u = lamb_direction(scaled(m[i], m_correction, segment), scaled(v[i], v_correction, segment), theta[i],
                                   epsilon, decay[segment]);
    return {{double(theta[i]) * double(theta[i]), double(u) * double(u)}};
  }
};

/// Second pass of LAMB: theta -= step[segment] * u; u is computed again rather than stored.
struct LambStep {
  float* theta;
  const float* m;
  const float* v;
  const float* step;
  const float *m_correction, *v_correction, *decay;
  float epsilon;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    theta[i] -= step[segment] * lamb_direction(scaled(m[i], m_correction, segment), scaled(v[i], v_correction, segment),
                                               theta[i], epsilon, decay[segment]);
  }
};

/// Factor of u in the second pass: step = lr * ratio * factor, where ratio = clamp(||theta||, low, high) / ||u||, or 1
/// where either of the two is zero. sums: ||theta||^2, ||u||^2 of each segment. factor [segments] may be null: 1. Runs
/// over the segments.
struct TrustRatio {
  const double* sums;
  const float* factor;
  float* step;
  double lr, high;
  DAT_HD void operator()(std::int64_t k) const {
    const double theta = std::sqrt(sums[k * kSums]), norm = std::sqrt(sums[k * kSums + 1]);
    const double tau = smaller(high, theta);
    const double ratio = tau != 0 && norm != 0 ? tau / norm : 1;
    step[k] = static_cast<float>(lr * ratio * (factor != nullptr ? double(factor[k]) : 1.0));
  }
};

/// average = keep*average + (1 - keep)*theta, rounded once: an average that has settled stays, and keep = 0 copies
/// theta, whatever is in the average.
struct Average {
  const float* theta;
  float* average;
  double keep;
  DAT_HD void operator()(std::int64_t i) const {
    const double kept = keep > 0 ? keep * double(average[i]) : 0;
    average[i] = static_cast<float>(kept + (1 - keep) * double(theta[i]));
  }
};

/// Exchanges a and b.
struct Exchange {
  float *a, *b;
  DAT_HD void operator()(std::int64_t i) const {
    const float value = a[i];
    a[i] = b[i];
    b[i] = value;
  }
};

}  // namespace dat::kernels
