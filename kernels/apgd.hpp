#pragma once

#include <cstdint>

#include "dat/random.hpp"
#include "norms.hpp"
#include "perturb.hpp"
#include "strips.hpp"

namespace dat::kernels {

// Auto-PGD: Croce and Hein, "Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free
// attacks", ICML 2020, algorithm 1, in the details as their public code. What is one number per image is [n].

/// The numbers that the random start of one run is made of: U(-1, 1) per pixel, for a start in the L2 ball N(0, 1).
struct StartNoise {
  BallNorm norm;
  const std::int64_t* sample_ids;  // [n]
  Layout layout;
  std::uint64_t seed;  // seed of the run
  Purpose purpose;
  std::uint32_t time = 0;
  /// Four of them, of the pixels 4k .. 4k + 3 of image n, counted in CHW order whatever the layout.
  template <class T>
  DAT_HD void draw(std::int64_t n, std::int64_t k, T (&u)[4]) const {
    const Philox4 words =
        random_words(seed, purpose, time, static_cast<std::uint64_t>(sample_ids[n]), static_cast<std::uint32_t>(k));
    for (int j = 0; j < 4; ++j)
      u[j] = norm == BallNorm::l2 ? normal_number<T>(words, j) : 2 * T{uniform(words.v[j])} - 1;
  }
};

/// size[n] = ||u|| over the pixels of image n. Runs over the images.
template <class T>
struct NoiseSize {
  StartNoise noise;
  T* size;
  DAT_HD void operator()(std::int64_t n) const {
    NormSum sum{noise.norm};
    for (std::int64_t k = 0; k < noise.layout.fours(); ++k) {
      T u[4];
      noise.draw(n, k, u);
      for (int j = 0; j < noise.layout.in_four(k); ++j) sum.add(u[j]);
    }
    size[n] = static_cast<T>(sum.value());
  }
};

/// x_adv = clamp(x + reach * u / (||u|| + 1e-12), 0, 1). Runs over n * layout.fours().
template <class T>
struct ScaledStart {
  StartNoise noise;
  const T *x, *size;
  T* x_adv;
  T reach;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t n = i / noise.layout.fours(), k = i % noise.layout.fours();
    T u[4];
    noise.draw(n, k, u);
    for (int j = 0; j < noise.layout.in_four(k); ++j) {
      const std::int64_t at = noise.layout.offset_chw(n, 4 * k + j);
      x_adv[at] = clamp(x[at] + reach * (u[j] / (size[n] + T(1e-12))), T{0}, T{1});
    }
  }
};

/// x_adv = clamp(x + eta, 0, 1), eta null: x. Runs over all elements.
template <class T>
struct GivenStart {
  const T *x, *eta;
  T* x_adv;
  DAT_HD void operator()(std::int64_t i) const { x_adv[i] = eta != nullptr ? clamp(x[i] + eta[i], T{0}, T{1}) : x[i]; }
};

/// State of APGD for each image between its iterations.
template <class T>
struct ApgdState {
  T *step, *best_loss, *checked_loss, *last_loss;  // checked: the best loss at the last checkpoint
  T* rises;                                        // iterations since the last checkpoint in which the loss rose
  T* halved;                                       // 1: the step was halved at the last checkpoint
  T *improved, *broken, *reset;                    // 1: what has just happened; broken: for the first time
};

/// The first look at the start. The loss before the first iteration counts as 0, as in the public code, where the index
/// wraps around to a place that is not filled yet. Runs over the images.
template <class T>
struct ApgdBegin {
  ApgdState<T> state;
  const T *losses, *correct;
  std::int32_t* done;
  T step;
  DAT_HD void operator()(std::int64_t n) const {
    state.step[n] = step;
    state.best_loss[n] = state.checked_loss[n] = losses[n];
    state.last_loss[n] = state.rises[n] = state.reset[n] = 0;
    state.halved[n] = state.improved[n] = 1;
    done[n] = correct[n] == 0 ? 1 : 0;
    state.broken[n] = correct[n] == 0 ? T{1} : T{0};
  }
};

/// Update of the state after an iteration. window: at a checkpoint, the iterations since the last one; else 0. There
/// the step is halved where the loss rose in no more than 3/4 of them, or where the best loss has not grown although
/// the step was not halved the last time. Runs over the images.
template <class T>
struct ApgdJudge {
  ApgdState<T> state;
  const T *losses, *correct;
  std::int32_t* done;
  int window;
  DAT_HD void operator()(std::int64_t n) const {
    const T loss = losses[n];
    state.rises[n] += loss > state.last_loss[n] ? T{1} : T{0};
    state.last_loss[n] = loss;
    state.improved[n] = loss > state.best_loss[n] ? T{1} : T{0};
    if (state.improved[n] != 0) state.best_loss[n] = loss;
    state.broken[n] = correct[n] == 0 && done[n] == 0 ? T{1} : T{0};
    if (correct[n] == 0) done[n] = 1;
    state.reset[n] = 0;
    if (window == 0) return;
    const bool halve = state.rises[n] <= T(0.75) * static_cast<T>(window) ||
                       (state.halved[n] == 0 && state.checked_loss[n] >= state.best_loss[n]);
    state.halved[n] = state.reset[n] = halve ? T{1} : T{0};
    if (halve) state.step[n] /= 2;
    state.checked_loss[n] = state.best_loss[n];
    state.rises[n] = 0;
  }
};

/// Keeps the best iterate and its gradient, and the first one that is misclassified. Runs over the strips.
template <class T>
struct ApgdKeep {
  Strips strips;
  ApgdState<T> state;
  const T *x_adv, *dx;
  T *best, *best_gradient, *adversarial;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    if (state.improved[strip.image] != 0)
      for (std::int64_t e = strip.begin; e < strip.end; ++e) {
        best[e] = x_adv[e];
        best_gradient[e] = dx[e];
      }
    if (state.broken[strip.image] != 0)
      for (std::int64_t e = strip.begin; e < strip.end; ++e) adversarial[e] = x_adv[e];
  }
};

/// Start of an iteration, at the best iterate where the step has just been halved, and the gradient there.
template <class T>
struct ApgdOrigin {
  ApgdState<T> state;
  const T *x_adv, *dx, *best, *best_gradient;
  [[nodiscard]] DAT_HD const T* image(std::int64_t n) const { return state.reset[n] != 0 ? best : x_adv; }
  [[nodiscard]] DAT_HD const T* gradient(std::int64_t n) const { return state.reset[n] != 0 ? best_gradient : dx; }
};

/// The next iterate in the L-infinity ball: a gradient step s, and of that `inertia`, with 1 - inertia of the last
/// move. Runs over the strips.
template <class T>
struct ApgdStep {
  Strips strips;
  ApgdOrigin<T> origin;
  const T* x;
  T *x_adv, *previous;
  T eps, inertia;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T *from = origin.image(strip.image), *gradient = origin.gradient(strip.image);
    const T step = origin.state.step[strip.image];
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      const T low = x[e] - eps, high = x[e] + eps, here = from[e], moved = here - previous[e];
      const T s = clamp(clamp(here + step * sign(gradient[e]), low, high), T{0}, T{1});
      previous[e] = here;
      x_adv[e] = clamp(clamp(here + inertia * (s - here) + (1 - inertia) * moved, low, high), T{0}, T{1});
    }
  }
};

// In the L2 ball an iteration is parted where it needs norms: those of the gradient, of the gradient step's move from
// x, and of the move with inertia.

/// Norms of the gradient's strips. Runs over the strips.
template <class T>
struct ApgdGradientNorms {
  Strips strips;
  ApgdOrigin<T> origin;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T* gradient = origin.gradient(strip.image);
    NormSum sum{BallNorm::l2};
    for (std::int64_t e = strip.begin; e < strip.end; ++e) sum.add(gradient[e]);
    partial[i] = static_cast<T>(sum.value());
  }
};

/// The gradient step's move from x, to be projected. Runs over the strips.
template <class T>
struct ApgdMoveL2 {
  Strips strips;
  ApgdOrigin<T> origin;
  const T *x, *norms;  // norms: of the gradient
  T* move;
  T tiny;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T *from = origin.image(strip.image), *gradient = origin.gradient(strip.image);
    const T step = origin.state.step[strip.image], length = norms[strip.image] + tiny;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) move[e] = from[e] - x[e] + step * (gradient[e] / length);
  }
};

/// Mixture of the gradient step, inside ball and box, times `inertia`, with 1 - inertia times the last move: again a
/// move from x, to be projected (ProjectL2). Runs over the strips.
template <class T>
struct ApgdMixL2 {
  Strips strips;
  ApgdOrigin<T> origin;
  const T *x, *norms;  // norms: of the move
  T *move, *previous;
  T eps, inertia;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T* from = origin.image(strip.image);
    const T factor = into_ball(norms[strip.image], eps);
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      const T here = from[e], moved = here - previous[e];
      const T s = clamp(x[e] + move[e] * factor, T{0}, T{1});
      previous[e] = here;
      move[e] = here + inertia * (s - here) + (1 - inertia) * moved - x[e];
    }
  }
};

}  // namespace dat::kernels
