#pragma once

#include "jacobi.hpp"
#include "loss.hpp"

// Terms of two predictions z and r of the same samples that are small where the two agree. Each kernel takes the term's
// gradient by z; r is `reference`. The terms are symmetric: whoever differentiates by r exchanges the two. Where `loss`
// is null, as `correct` then is, another term's losses are there already, and its gradient, to which this one is added.

namespace dat::kernels {

DAT_HD inline void put(float& gradient, bool add, float value) { gradient = add ? gradient + value : value; }

/// mean_k (z_k - r_k)^2 of each sample. The gradient is scaled.
struct LogitDistance : Predictions {
  DAT_HD void operator()(std::int64_t i) const {
    const float *const z = logits + i * classes, *const r = reference + i * classes;
    const double part = 1.0 / classes;
    double total = 0;
    for (int k = 0; k < classes; ++k) {
      const double apart = static_cast<double>(z[k]) - static_cast<double>(r[k]);
      total += apart * apart;
      put(dlogits[i * classes + k], loss == nullptr, gradient_scale * static_cast<float>(2 * part * apart));
    }
    if (loss == nullptr) return;
    loss[i] = static_cast<float>(part * total);
    correct[i] = Softmax<float>(z, classes).correct(labels[i]);
  }
};

/// ||softmax(z) - softmax(r)||^2 of each sample, in the Euclidean norm. The gradient is scaled.
struct SoftmaxDistance : Predictions {
  DAT_HD void operator()(std::int64_t i) const {
    const Softmax<double> q(logits + i * classes, classes), p(reference + i * classes, classes);
    double total = 0, mean = 0;
    for (int k = 0; k < classes; ++k) {
      const double apart = q.of(k) - p.of(k);
      total += apart * apart;
      mean += q.of(k) * apart;
    }
    for (int k = 0; k < classes; ++k)
      put(dlogits[i * classes + k], loss == nullptr,
          gradient_scale * static_cast<float>(2 * q.of(k) * (q.of(k) - p.of(k) - mean)));
    if (loss == nullptr) return;
    loss[i] = static_cast<float>(total);
    correct[i] = q.correct(labels[i]);
  }
};

/// A^T A of A = z - r [n, classes]: gram [classes, classes]. Runs over its elements.
struct DifferenceGram {
  const float *logits, *reference;  // [n, classes]
  double* gram;
  int n, classes;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t a = i / classes, b = i % classes;
    double total = 0;
    for (std::int64_t row = 0; row < n; ++row) total += apart(row * classes + a) * apart(row * classes + b);
    gram[i] = total;
  }
  [[nodiscard]] DAT_HD double apart(std::int64_t at) const { return double{logits[at]} - double{reference[at]}; }
};

/// (A^T A)^(-1/2), with the singular values of A below kTiny of the largest left out, from `gram`, which is lost. A
/// times it is U V^T of the thin singular value decomposition A = U S V^T: the gradient of the nuclear norm. Runs once.
struct InverseRoot {
  static constexpr double kTiny = 1e-6;
  double *gram, *vectors, *root;  // [classes, classes]
  int classes;
  DAT_HD void operator()(std::int64_t) const {
    const int n = classes;
    double trace = 0, largest = 0;
    for (int k = 0; k < n; ++k) trace += gram[k * n + k];
    diagonalise(gram, vectors, n, 1e-15 * trace);
    for (int k = 0; k < n; ++k) largest = larger(gram[k * n + k], largest);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        double total = 0;
        for (int k = 0; k < n; ++k) {
          const double square = gram[k * n + k];
          if (square > kTiny * kTiny * largest) total += vectors[i * n + k] * vectors[j * n + k] / std::sqrt(square);
        }
        root[i * n + j] = total;
      }
  }
};

/// The nuclear norm of A = z - r [n, classes], the sum of its singular values, in parts of the samples: the scalar
/// product of the sample's row of A and of the gradient U V^T; `root` as InverseRoot leaves it. The gradient is scaled.
struct NuclearNorm : Predictions {
  const double* root;  // [classes, classes]
  DAT_HD void operator()(std::int64_t i) const {
    const float *const z = logits + i * classes, *const r = reference + i * classes;
    double part = 0;
    for (int k = 0; k < classes; ++k) {
      double slope = 0;
      for (int j = 0; j < classes; ++j) slope += (double{z[j]} - double{r[j]}) * root[j * classes + k];
      part += (double{z[k]} - double{r[k]}) * slope;
      put(dlogits[i * classes + k], loss == nullptr, gradient_scale * static_cast<float>(slope));
    }
    if (loss == nullptr) return;
    loss[i] = static_cast<float>(part);
    correct[i] = Softmax<float>(z, classes).correct(labels[i]);
  }
};

}  // namespace dat::kernels
