#pragma once

#include <cmath>
#include <cstdint>

#include "dat/norm.hpp"
#include "perturb.hpp"
#include "strips.hpp"

namespace dat::kernels {

/// A norm in the making, of numbers one by one, or of parts whose norms are known.
struct NormSum {
  BallNorm norm;
  double total = 0;
  DAT_HD void add(double value) {
    total = norm == BallNorm::l2 ? total + value * value : larger(std::fabs(value), total);
  }
  [[nodiscard]] DAT_HD double value() const { return norm == BallNorm::l2 ? std::sqrt(total) : total; }
};

/// The dual norm: of L-infinity the sum of sizes (L1), of L2 itself. By it, |df| / ||w|| is the distance from the plane
/// <w, .> = df.
struct DualSum : NormSum {
  DAT_HD void add(double value) { total += norm == BallNorm::l2 ? value * value : std::fabs(value); }
};

// Norms of images take two passes, with those of the strips in between.

/// L2 norms of the strips. Runs over the strips.
template <class T>
struct StripNorms {
  Strips strips;
  const T* values;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    NormSum sum{BallNorm::l2};
    for (std::int64_t e = strip.begin; e < strip.end; ++e) sum.add(values[e]);
    partial[i] = static_cast<T>(sum.value());
  }
};

/// L2 norms of what the strips' norms are of. Runs over the images, or whatever has per_image strips.
template <class T>
struct JoinNorms {
  Strips strips;
  const T* partial;
  T* norms;
  DAT_HD void operator()(std::int64_t n) const {
    NormSum sum{BallNorm::l2};
    for (std::int64_t k = 0; k < strips.per_image(); ++k) sum.add(partial[n * strips.per_image() + k]);
    norms[n] = static_cast<T>(sum.value());
  }
};

/// Factor of a move of this L2 norm with which it ends in the ball: min(eps, norm) / (norm + 1e-12), as in the public
/// code of AutoAttack (autopgd_base.py, normalize).
template <class T>
[[nodiscard]] DAT_HD inline T into_ball(T norm, T eps) {
  return smaller(norm, eps) / (norm + T(1e-12));
}

/// A gradient step of PGD in the L2 ball: move += alpha * dx / (||dx|| + tiny). Runs over the strips.
template <class T>
struct NormalizedStep {
  Strips strips;
  const T *dx, *norms;  // norms: of dx
  T* move;
  T alpha, tiny;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T length = norms[strip.image] + tiny;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) move[e] += alpha * (dx[e] / length);
  }
};

/// The projection onto the L2 ball, then onto the box: move = clamp(x + move * into_ball, 0, 1) - x, x_adv = x + move.
/// The box comes second (MadryLab/robustness, attack_steps.py, L2Step; AutoAttack); it only makes moves smaller. Runs
/// over the strips.
template <class T>
struct ProjectL2 {
  Strips strips;
  const T *x, *norms;  // norms: of move
  T *move, *x_adv;
  T eps;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T factor = into_ball(norms[strip.image], eps);
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      move[e] = clamp(x[e] + move[e] * factor, T{0}, T{1}) - x[e];
      x_adv[e] = x[e] + move[e];
    }
  }
};

}  // namespace dat::kernels
