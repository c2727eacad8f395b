#pragma once

#include <cstdint>

#include "loss.hpp"
#include "perturb.hpp"
#include "strips.hpp"

namespace dat::kernels {

// Randomized smoothing (Cohen, Rosenfeld, Kolter, "Certified Adversarial Robustness via Randomized Smoothing", ICML
// 2019; Salman et al., "Provably Robust Deep Learning via Adversarially Trained Smoothed Classifiers", NeurIPS 2019): a
// network sees `copies` copies of each image, number n * copies + j being copy j of image n.

/// The copies x + N(0, sigma^2), not clamped. The normal numbers of copy j of a sample are those of its own counters,
/// whatever the layout: pixels 4k .. 4k + 3 in CHW order are of index j * ceil(pixels / 4) + k. Runs over
/// n * copies * ceil(pixels / 4).
struct NoisyCopies {
  const float* x;                  // [n]
  float* to;                       // [n * copies]
  const std::int64_t* sample_ids;  // [n]
  Layout layout;
  std::uint64_t seed;
  std::uint32_t time;
  float sigma;
  int copies;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t fours = layout.fours(), copy = i / fours, n = copy / copies, k = i % fours;
    const Philox4 words = random_words(seed, Purpose::noise, time, static_cast<std::uint64_t>(sample_ids[n]),
                                       static_cast<std::uint32_t>(copy % copies * fours + k));
    for (int j = 0; j < layout.in_four(k); ++j)
      to[layout.offset_chw(copy, 4 * k + j)] =
          x[layout.offset_chw(n, 4 * k + j)] + sigma * normal_number<float>(words, j);
  }
};

/// Repetition of a row of `width` numbers per image, for each of its copies. Runs over n * copies * width.
template <class T>
struct Repeat {
  const T* of_images;
  T* of_copies;
  std::int64_t width;
  int copies;
  DAT_HD void operator()(std::int64_t i) const { of_copies[i] = of_images[i / width / copies * width + i % width]; }
};

/// Inverse of Repeat for gradients: the sum over the copies of an image. Runs over n * width.
struct SumOfCopies {
  const float* of_copies;
  float* of_images;
  std::int64_t width;
  int copies;
  DAT_HD void operator()(std::int64_t i) const {
    const float* const first = of_copies + i / width * copies * width + i % width;
    float sum = first[0];
    for (int j = 1; j < copies; ++j) sum += first[j * width];
    of_images[i] = sum;
  }
};

/// ln(e^a + e^b).
[[nodiscard]] DAT_HD inline double log_of_sum(double a, double b) {
  return larger(a, b) + log1p(exp(-std::fabs(a - b)));
}

/// The prediction of the smoothed network as logits: ln p_c, p_c being the mean over the copies of softmax_c.
/// log_means: the same, not rounded. Runs over the images.
struct MeanSoftmax {
  const float* logits;  // [n * copies, classes]
  float* smoothed;      // [n, classes]
  double* log_means;    // [n, classes]
  int classes, copies;
  DAT_HD void operator()(std::int64_t n) const {
    double* const means = log_means + n * classes;
    for (int j = 0; j < copies; ++j) {
      const Softmax<double> p(logits + (n * copies + j) * classes, classes);
      for (int c = 0; c < classes; ++c)
        means[c] = j == 0 ? -p.minus_log_of(c) : log_of_sum(means[c], -p.minus_log_of(c));
    }
    for (int c = 0; c < classes; ++c) {
      means[c] -= log(static_cast<double>(copies));
      smoothed[n * classes + c] = static_cast<float>(means[c]);
    }
  }
};

/// Gradient by the copies' own logits from the gradient g by these logits: for copy j with the softmax q and the
/// weights w_c = q_c / sum over the copies of softmax_c, it is g_k w_k - q_k sum_c g_c w_c. Runs over the copies.
struct MeanSoftmaxGradient {
  const float *logits, *dsmoothed;  // [n * copies, classes], [n, classes]
  const double* log_means;          // [n, classes]
  float* dlogits;                   // [n * copies, classes]
  int classes, copies;
  DAT_HD void operator()(std::int64_t i) const {
    const Softmax<double> q(logits + i * classes, classes);
    const float* const g = dsmoothed + i / copies * classes;
    const double* const means = log_means + i / copies * classes;
    const auto pulled = [&](int c) { return double{g[c]} * exp(-q.minus_log_of(c) - means[c]) / copies; };
    double all = 0;
    for (int c = 0; c < classes; ++c) all += pulled(c);
    for (int c = 0; c < classes; ++c) dlogits[i * classes + c] = static_cast<float>(pulled(c) - q.of(c) * all);
  }
};

/// SmoothAdv's floor: a loss -ln p_y is that of p_y = 1e-20 at most, where it has no gradient. Runs over the images.
struct FloorOfLikelihood {
  float *loss, *gradient;  // [n], [n, classes]
  int classes;
  DAT_HD void operator()(std::int64_t n) const {
    constexpr float kMost = 46.0517018F;
    if (!(loss[n] > kMost)) return;
    loss[n] = kMost;
    if (gradient != nullptr)
      for (int c = 0; c < classes; ++c) gradient[n * classes + c] = 0;
  }
};

/// A step of SmoothAdv within the box: move = clamp(x + move + alpha u, 0, 1) - x, u being dx / ||dx||, or where that
/// norm is 0 normal numbers of the sample's counters: pixels 4k .. 4k + 3 in CHW order are of index
/// iteration * ceil(pixels / 4) + k. Runs over n * ceil(pixels / 4).
template <class T>
struct SmoothAdvMove {
  const T *x, *dx, *norms;  // norms: [n], of dx
  T* move;
  const std::int64_t* sample_ids;  // [n]
  Layout layout;
  std::uint64_t seed;
  Purpose purpose;
  std::uint32_t time, iteration;
  T alpha;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t fours = layout.fours(), n = i / fours, k = i % fours;
    const auto words = [&] {
      return random_words(seed, purpose, time, static_cast<std::uint64_t>(sample_ids[n]),
                          static_cast<std::uint32_t>(iteration * fours + k));
    };
    for (int j = 0; j < layout.in_four(k); ++j) {
      const std::int64_t at = layout.offset_chw(n, 4 * k + j);
      const T u = norms[n] == T{0} ? normal_number<T>(words(), j) : dx[at] / norms[n];
      move[at] = clamp(x[at] + move[at] + alpha * u, T{0}, T{1}) - x[at];
    }
  }
};

/// The projection that comes after the box: move *= min(1, eps / ||move||), x_adv = x + move. Runs over the strips.
template <class T>
struct ShrinkIntoBall {
  Strips strips;
  const T *x, *norms;  // norms: of move
  T *move, *x_adv;
  T eps;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T factor = smaller(eps / norms[strip.image], T{1});
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      move[e] *= factor;
      x_adv[e] = x[e] + move[e];
    }
  }
};

}  // namespace dat::kernels
