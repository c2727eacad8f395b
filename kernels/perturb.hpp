#pragma once

#include <cstdint>

#include "dat/random.hpp"
#include "launch.hpp"

namespace dat::kernels {

[[nodiscard]] DAT_HD inline float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/// sign(0) = 0, as PyTorch's.
[[nodiscard]] DAT_HD inline float sign(float x) { return static_cast<float>((x > 0.0F) - (x < 0.0F)); }

/// eta ~ U(-eps, eps) per pixel, x_adv = x + eta (not clamped). Runs over n * ceil(pixels/4), pixels = c*h*w counted in
/// CHW order whatever the layout, so that every device draws the same image.
struct RandomStart {
  const float* x;
  float *eta, *x_adv;
  const std::int64_t* sample_ids;  // [n]
  Layout layout;
  std::uint64_t seed;
  Purpose purpose;
  std::uint32_t time;
  float eps;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t pixels = layout.elements(), per_image = (pixels + 3) / 4;
    const std::int64_t n = i / per_image, k = i % per_image;
    const Philox4 words =
        random_words(seed, purpose, time, static_cast<std::uint64_t>(sample_ids[n]), static_cast<std::uint32_t>(k));
    const int hw = layout.h * layout.w;
    for (int j = 0; j < 4; ++j) {
      const std::int64_t p = 4 * k + j;
      if (p >= pixels) return;
      const int c = static_cast<int>(p / hw), rest = static_cast<int>(p % hw);
      const std::int64_t at = layout.offset(n, c, rest / layout.w, rest % layout.w);
      eta[at] = (2.0F * uniform(words.v[j]) - 1.0F) * eps;
      x_adv[at] = x[at] + eta[at];
    }
  }
};

/// One iteration of PGD, in this order: z = clamp(x + eta + alpha*sign(dx), 0, 1), eta = clamp(z - x, -eps, eps).
/// The next gradient is taken at x_adv = x + eta. (DAT, attack.py; Madry et al. 2018.)
DAT_HD inline void pgd_step(const PgdUpdate& u, std::int64_t i, float dx) {
  const float z = clamp(u.x[i] + u.eta[i] + u.alpha * sign(dx), 0.0F, 1.0F);
  u.eta[i] = clamp(z - u.x[i], -u.eps, u.eps);
  u.x_adv[i] = u.x[i] + u.eta[i];
}

struct PgdStep {
  PgdUpdate update;
  const float* dx;
  DAT_HD void operator()(std::int64_t i) const { pgd_step(update, i, dx[i]); }
};

/// The single step of fast FGSM training: eta = clamp(eta + alpha*sign(g), -eps, eps), where g = dx, and 0 where
/// x + eta was clamped (Wong, Rice, Kolter 2020, as DAT uses it).
struct FgsmStep {
  const float *x, *dx;
  float* eta;
  float alpha, eps;
  DAT_HD void operator()(std::int64_t i) const {
    const float inside = x[i] + eta[i];
    const float g = inside < 0.0F || inside > 1.0F ? 0.0F : dx[i];
    eta[i] = clamp(eta[i] + alpha * sign(g), -eps, eps);
  }
};

/// x_adv = clamp(x + eta, 0, 1).
struct ClampSum {
  const float *x, *eta;
  float* x_adv;
  DAT_HD void operator()(std::int64_t i) const { x_adv[i] = clamp(x[i] + eta[i], 0.0F, 1.0F); }
};

}  // namespace dat::kernels
