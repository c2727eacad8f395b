#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

DAT_HD inline float exponential(float x) { return expf(x); }
DAT_HD inline double exponential(double x) { return exp(x); }
DAT_HD inline float logarithm_of_one_and(float x) { return log1pf(x); }
DAT_HD inline double logarithm_of_one_and(double x) { return log1p(x); }

/// The softmax of one sample's logits, computed in T. A loss runs over the samples, one per call. A divergence of two
/// softmaxes takes double: where they are close, as at the start of an attack, it is a small difference of large terms,
/// of which f32 keeps three digits or none.
template <class T>
struct Softmax {
  const float* z;  // [classes]
  int best = 0;    // the first of the largest ones
  T rest = 0;      // sum of exp(z_k - z_best) over the others
  T total, log_total;

  DAT_HD Softmax(const float* logits, int classes) : z(logits) {
    for (int k = 1; k < classes; ++k)
      if (z[k] > z[best]) best = k;
    for (int k = 0; k < classes; ++k)
      if (k != best) rest += exponential(below_best(k));
    total = 1 + rest;
    log_total = logarithm_of_one_and(rest);
  }
  [[nodiscard]] DAT_HD T below_best(int k) const { return static_cast<T>(z[k]) - static_cast<T>(z[best]); }
  [[nodiscard]] DAT_HD T of(int k) const { return exponential(below_best(k)) / total; }
  [[nodiscard]] DAT_HD T minus_log_of(int k) const { return log_total - below_best(k); }
  /// 1 - of(k), without losing the digits of the others where k has nearly all: the sign of the image's gradient hangs
  /// on them.
  [[nodiscard]] DAT_HD T all_but(int k) const { return k == best ? rest / total : 1 - of(k); }
  /// 1 where the label's is the largest, else 0; -1 where the label is unknown.
  [[nodiscard]] DAT_HD float correct(std::int32_t label) const {
    return label < 0 ? -1.0F : best == label ? 1.0F : 0.0F;
  }
};

/// Cross-entropy of softmax: loss[i], correct[i] (1 where the largest logit is the label's; the first of equal ones
/// counts), and dlogits[i][k] = gradient_scale * (softmax_k - target_k) where dlogits is given. The target is
/// (1 - smoothing) [k = label] + smoothing/classes (Szegedy et al., "Rethinking the Inception Architecture for Computer
/// Vision", CVPR 2016, section 7). Where the label is unknown (-1): loss and gradient 0, correct -1.
struct SoftmaxCrossEntropy {
  const float* logits;         // [n, classes]
  const std::int32_t* labels;  // [n]
  float *loss, *correct, *dlogits;
  int classes;
  float gradient_scale;
  float smoothing = 0;
  DAT_HD void operator()(std::int64_t i) const {
    const Softmax<float> q(logits + i * classes, classes);
    const int label = labels[i];
    const float of_each = smoothing / static_cast<float>(classes);
    float* d = dlogits != nullptr ? dlogits + i * classes : nullptr;
    correct[i] = q.correct(label);
    if (label < 0) {
      loss[i] = 0;
      if (d != nullptr)
        for (int k = 0; k < classes; ++k) d[k] = 0;
      return;
    }
    loss[i] = q.minus_log_of(label);
    if (smoothing > 0) {
      float all = 0;
      for (int k = 0; k < classes; ++k) all += q.minus_log_of(k);
      loss[i] = (1.0F - smoothing) * loss[i] + of_each * all;
    }
    if (d == nullptr) return;
    for (int k = 0; k < classes; ++k)
      d[k] = gradient_scale * ((k == label ? smoothing - q.all_but(k) : q.of(k)) - of_each);
  }
};

/// Two predictions of the same samples, and places for what a loss makes of the first one.
struct Predictions {
  const float *logits, *reference;  // [n, classes]
  const std::int32_t* labels;       // [n]
  float *loss, *correct;            // [n]
  float* dlogits;                   // [n, classes]
  int classes;
  float gradient_scale;
};

/// KL(p||q).
[[nodiscard]] DAT_HD inline double divergence(const Softmax<double>& p, const Softmax<double>& q, int classes) {
  double sum = 0;
  for (int k = 0; k < classes; ++k) sum += p.of(k) * (q.minus_log_of(k) - p.minus_log_of(k));
  return sum;
}

/// KL(p||q) of the softmaxes p of `reference` and q of `logits`, p being constant: dlogits = gradient_scale * (q - p).
/// unlabelled_only: samples whose label is known are left alone.
struct KlDivergence : Predictions {
  bool unlabelled_only;
  DAT_HD void operator()(std::int64_t i) const {
    if (unlabelled_only && labels[i] >= 0) return;
    const Softmax<double> p(reference + i * classes, classes), q(logits + i * classes, classes);
    loss[i] = static_cast<float>(divergence(p, q, classes));
    correct[i] = q.correct(labels[i]);
    if (dlogits == nullptr) return;
    float* d = dlogits + i * classes;
    for (int k = 0; k < classes; ++k) d[k] = gradient_scale * static_cast<float>(q.of(k) - p.of(k));
  }
};

/// The gradient of the same divergence by the logits of p: dreference += gradient_scale * p (ln p - ln q - KL(p||q)).
struct KlReferenceGradient {
  const float *logits, *reference;  // [n, classes], of q and of p
  const std::int32_t* labels;       // [n]
  float* dreference;                // [n, classes]
  int classes;
  float gradient_scale;
  bool unlabelled_only;
  DAT_HD void operator()(std::int64_t i) const {
    if (unlabelled_only && labels[i] >= 0) return;
    const Softmax<double> p(reference + i * classes, classes), q(logits + i * classes, classes);
    const double mean = divergence(p, q, classes);
    float* d = dreference + i * classes;
    for (int k = 0; k < classes; ++k)
      d[k] += gradient_scale * static_cast<float>(p.of(k) * ((q.minus_log_of(k) - p.minus_log_of(k)) - mean));
  }
};

/// MART (Wang et al., "Improving Adversarial Robustness Requires Revisiting Misclassified Examples", ICLR 2020; the
/// constants are those of its code, mart.py), with the softmaxes p of the clean and q of the attacked image, the label
/// y, and the wrong class w that q finds most likely (the first of equal ones):
///   boosted  = -ln q_y - ln(1.0001 - q_w)
///   weighted = (1.0000001 - p_y) * sum_k p_k (ln p_k - ln(q_k + 1e-12))
struct Mart {
  static constexpr double kTiny = 1e-12, kFloor = 1e-4;
  Softmax<double> p, q;
  int wrong;
  double p_others, q_others;  // 1.0000001 - p_y, 1.0001 - q_w

  DAT_HD Mart(const float* clean, const float* attacked, int count, int y)
      : p(clean, count), q(attacked, count), wrong(y == 0 ? 1 : 0) {
    for (int k = 0; k < count; ++k)
      if (k != y && q.z[k] > q.z[wrong]) wrong = k;
    p_others = 1e-7 + p.all_but(y);
    q_others = kFloor + q.all_but(wrong);
  }
  /// ln p_k - ln(q_k + 1e-12).
  [[nodiscard]] DAT_HD double log_ratio(int k) const { return -p.minus_log_of(k) - log(q.of(k) + kTiny); }
  /// d ln(q_k + 1e-12)/d ln q_k.
  [[nodiscard]] DAT_HD double slope(int k) const { return q.of(k) / (q.of(k) + kTiny); }
};

/// MART's loss for the attacked images, with the clean ones as reference: loss = boosted; the gradient is that of
/// gradient_scale * (boosted + beta * weighted).
struct MartAttacked : Predictions {
  float beta;
  DAT_HD void operator()(std::int64_t i) const {
    const int label = labels[i];
    const Mart m(reference + i * classes, logits + i * classes, classes, label);
    loss[i] = static_cast<float>(m.q.minus_log_of(label) - log(m.q_others));
    correct[i] = m.q.correct(label);
    double pulled = 0;
    for (int k = 0; k < classes; ++k) pulled += m.p.of(k) * m.slope(k);
    const double pushed = m.q.of(m.wrong) / m.q_others, weight = beta * m.p_others;
    float* d = dlogits + i * classes;
    for (int k = 0; k < classes; ++k) {
      const double q = m.q.of(k);
      const double others = k == m.wrong ? m.q_others - Mart::kFloor : -q;  // [k = w] - q_k
      d[k] = gradient_scale * static_cast<float>((q - (k == label ? 1.0 : 0.0)) + pushed * others +
                                                 weight * (q * pulled - m.p.of(k) * m.slope(k)));
    }
  }
};

/// MART's loss for the clean images, with the attacked ones as reference: loss = weighted; the gradient is that of
/// gradient_scale * weighted.
struct MartClean : Predictions {
  DAT_HD void operator()(std::int64_t i) const {
    const int label = labels[i];
    const Mart m(logits + i * classes, reference + i * classes, classes, label);
    double divergence = 0;
    for (int k = 0; k < classes; ++k) divergence += m.p.of(k) * m.log_ratio(k);
    loss[i] = static_cast<float>(m.p_others * divergence);
    correct[i] = m.p.correct(label);
    float* d = dlogits + i * classes;
    for (int k = 0; k < classes; ++k) {
      const double p = m.p.of(k);
      d[k] = gradient_scale * static_cast<float>(m.p_others * p * (m.log_ratio(k) - divergence) -
                                                 divergence * m.p.of(label) * ((k == label ? 1.0 : 0.0) - p));
    }
  }
};

}  // namespace dat::kernels
