#pragma once

#include <cmath>
#include <cstdint>

#include "dat/random.hpp"
#include "launch.hpp"
#include "normal.hpp"

namespace dat::kernels {

template <class T>
[[nodiscard]] DAT_HD inline T clamp(T x, T low, T high) {
  return smaller(high, larger(low, x));
}

/// sign(0) = 0, as PyTorch's.
template <class T>
[[nodiscard]] DAT_HD inline T sign(T x) {
  return static_cast<T>((x > T{0}) - (x < T{0}));
}

/// eta ~ U(-eps, eps) per pixel, or where `spread` is above 0 N(0, spread^2); x_adv = x + eta. Where `in_box`, eta is
/// cut so that x + eta is in [0, 1], else x_adv is not clamped. Runs over n * layout.fours(), pixels counted in
/// CHW order whatever the layout, so that every device draws the same image.
struct RandomStart {
  const float* x;
  float *eta, *x_adv;
  const std::int64_t* sample_ids;  // [n]
  Layout layout;
  std::uint64_t seed;
  Purpose purpose;
  std::uint32_t time;
  float eps, spread;
  bool in_box;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t n = i / layout.fours(), k = i % layout.fours();
    const Philox4 words =
        random_words(seed, purpose, time, static_cast<std::uint64_t>(sample_ids[n]), static_cast<std::uint32_t>(k));
    for (int j = 0; j < layout.in_four(k); ++j) {
      const std::int64_t at = layout.offset_chw(n, 4 * k + j);
      eta[at] = spread > 0 ? spread * normal_number<float>(words, j) : (2.0F * uniform(words.v[j]) - 1.0F) * eps;
      if (in_box) eta[at] = clamp(x[at] + eta[at], 0.0F, 1.0F) - x[at];
      x_adv[at] = x[at] + eta[at];
    }
  }
};

/// One iteration of PGD, in this order: z = clamp(x + eta + alpha*sign(dx), 0, 1), eta = clamp(z - x, -eps, eps).
/// The next gradient is taken at x_adv = x + eta. (DAT, attack.py; Madry et al. 2018.) With an infinite eps: in the box
/// alone.
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
/// x + eta was clamped (Wong, Rice, Kolter 2020, in their code for ImageNet, and DAT). A start in the box has nothing
/// clamped (theirs for CIFAR-10). With an infinite eps, and a start of up to 2 eps in the box: N-FGSM (de Jorge et al.,
/// "Make Some Noise: Reliable and Efficient Single-Step Adversarial Training", NeurIPS 2022).
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

/// eta = NaN where the gradient is not finite, whose sign would be no step at all: which the attacked image then shows.
struct SpoilPerturbation {
  const float* dx;
  float* eta;
  DAT_HD void operator()(std::int64_t i) const {
    if (const float nan = dx[i] - dx[i]; nan != 0.0F) eta[i] = nan;
  }
};

/// Slots of the samples of an attack while a program computes some of them: slot k holds samples[k], or none (-1).
struct Slots {
  const std::int32_t* samples;
  std::int64_t elements;  // elements of one image
  /// Index of the slots' element i among all images; below 0: the slot is empty.
  [[nodiscard]] DAT_HD std::int64_t home(std::int64_t i) const {
    return samples[i / elements] * elements + i % elements;
  }
};

/// Fills the slots (x, eta, x_adv = x + eta, labels) from the arrays of all samples. Empty ones stay as they are. Runs
/// over the elements of the slots.
struct FillSlots {
  Slots slots;
  const float *all_x, *all_eta;
  const std::int32_t* all_labels;
  float *x, *eta, *x_adv;
  std::int32_t* labels;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t from = slots.home(i);
    if (from < 0) return;
    x[i] = all_x[from];
    eta[i] = all_eta[from];
    x_adv[i] = x[i] + eta[i];
    if (i % slots.elements == 0) labels[i / slots.elements] = all_labels[from / slots.elements];
  }
};

/// A row of `elements` values of each slot's sample, into the slots. Empty ones stay as they are. Runs over the
/// elements of the slots.
template <class T>
struct Gather {
  Slots slots;
  const T* all;
  T* to;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t from = slots.home(i);
    if (from >= 0) to[i] = all[from];
  }
};

/// Inverse of the former.
struct Scatter {
  Slots slots;
  const float* from;
  float* all;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t to = slots.home(i);
    if (to >= 0) all[to] = from[i];
  }
};

/// PGD-K-tau: how many steps each sample [all] may still take from places where it is fooled. It leaves the attack
/// where it would need one more: -1. Runs over the slots; their samples have not left.
struct CountFooled {
  const std::int32_t* samples;  // [slots]; -1: empty
  const float* correct;         // [slots], 0: fooled
  std::int32_t* steps_left;
  DAT_HD void operator()(std::int64_t i) const {
    if (samples[i] >= 0 && correct[i] == 0.0F) --steps_left[samples[i]];
  }
};

/// all_eta of a sample = that of its slot, unless the sample has left. Runs over the elements of the slots.
struct KeepSteps {
  Slots slots;
  const std::int32_t* steps_left;
  const float* eta;
  float* all_eta;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t to = slots.home(i);
    if (to >= 0 && steps_left[to / slots.elements] >= 0) all_eta[to] = eta[i];
  }
};

}  // namespace dat::kernels
