#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// Classes by their logits, the largest first, the first of equal ones first; -1 after the last class.
struct LargestFour {
  int at[4] = {-1, -1, -1, -1};
};

template <class T>
[[nodiscard]] DAT_HD inline LargestFour largest_four(const T* z, int classes) {
  LargestFour top;
  for (int k = 0; k < classes; ++k) {
    int place = smaller(k, 4);
    while (place > 0 && z[k] > z[top.at[place - 1]]) {
      if (place < 4) top.at[place] = top.at[place - 1];
      --place;
    }
    if (place < 4) top.at[place] = k;
  }
  return top;
}

/// The class at place `rank` in that order, the largest logit at 0; some class where logits are NaN and have no order.
template <class T>
[[nodiscard]] DAT_HD inline int class_of_rank(const T* z, int classes, int rank) {
  int at = -1;
  for (int place = 0; place <= rank; ++place) {
    int next = -1;
    for (int k = 0; k < classes; ++k) {
      const bool behind = at < 0 || z[k] < z[at] || (z[k] == z[at] && k > at);
      if (behind && (next < 0 || z[k] > z[next])) next = k;
    }
    if (next < 0) break;
    at = next;
  }
  return at;
}

/// Divisor of a difference of logits, of logits z_(1) >= z_(2) >= ..., to which 1e-12 is added.
enum class Divisor : std::uint8_t {
  one,              ///< no division
  third,            ///< z_(1) - z_(3)
  third_and_fourth  ///< z_(1) - (z_(3) + z_(4)) / 2
};

/// min((z_a - z_y) / divisor, cap) with a = the target, or the largest logit but the label's. One sample per call:
/// loss[i], correct[i] as SoftmaxCrossEntropy, and the gradient, where it is wanted, through the divisor, too. Where
/// the label is unknown (-1): loss and gradient 0, correct -1.
///
/// Divisor third without targets is the difference of logits ratio (DLR), third_and_fourth with targets its targeted
/// form (Croce and Hein, "Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free
/// attacks", ICML 2020); one with a cap is Carlini and Wagner's margin with the cap as confidence, as PGD climbs it in
/// the public code of Madry et al., ICLR 2018 (there 50).
template <class T>
struct MarginLoss {
  const T* logits;              // [n, classes]
  const std::int32_t* labels;   // [n]
  const std::int32_t* targets;  // [n]; null: none
  T *loss, *correct, *dlogits;
  int classes;
  T gradient_scale, cap;
  Divisor divisor;
  DAT_HD void operator()(std::int64_t i) const {
    const T* z = logits + i * classes;
    T* const d = dlogits != nullptr ? dlogits + i * classes : nullptr;
    if (d != nullptr)
      for (int k = 0; k < classes; ++k) d[k] = 0;
    if (labels[i] < 0) {
      loss[i] = 0;
      correct[i] = -1;
      return;
    }
    const LargestFour top = largest_four(z, classes);
    const int y = labels[i], a = targets != nullptr ? targets[i] : top.at[0] == y ? top.at[1] : top.at[0];
    const T difference = z[a] - z[y];
    T by = 1;
    if (divisor == Divisor::third) by = z[top.at[0]] - z[top.at[2]] + T(1e-12);
    if (divisor == Divisor::third_and_fourth) by = z[top.at[0]] - (z[top.at[2]] + z[top.at[3]]) / 2 + T(1e-12);
    const T ratio = difference / by;
    const bool capped = ratio >= cap;
    loss[i] = capped ? cap : ratio;
    correct[i] = top.at[0] == y ? T{1} : T{0};
    if (d == nullptr || capped) return;
    const T slope = gradient_scale / by, of_divisor = -slope * ratio;
    d[a] += slope;
    d[y] -= slope;
    if (divisor == Divisor::one) return;
    d[top.at[0]] += of_divisor;
    const bool both = divisor == Divisor::third_and_fourth;
    const T part = both ? of_divisor / 2 : of_divisor;
    d[top.at[2]] -= part;
    if (both) d[top.at[3]] -= part;
  }
};

/// The target of each sample: the class at place `rank` among its logits.
template <class T>
struct TargetOfRank {
  const T* logits;        // [n, classes]
  std::int32_t* targets;  // [n]
  int classes, rank;
  DAT_HD void operator()(std::int64_t i) const { targets[i] = class_of_rank(logits + i * classes, classes, rank); }
};

/// The target of each sample: the k-th class, counted from 0, that is not its label.
struct WrongClass {
  const std::int32_t* labels;
  std::int32_t* targets;
  int k;
  DAT_HD void operator()(std::int64_t i) const { targets[i] = k < labels[i] ? k : k + 1; }
};

}  // namespace dat::kernels
