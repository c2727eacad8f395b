#pragma once

#include "attack/apgd_loop.hpp"
#include "attack/attacks.hpp"
#include "fab.hpp"

namespace dat {

struct FabSettings {
  BallNorm norm = BallNorm::linf;
  double eps = 0;  ///< an image is done with when one is found inside this ball; the iterations do not depend on it
  int iterations = 100;
  int rank = 0;               ///< rank of the target among the logits of the clean image; 0: all wrong classes
  bool random_start = false;  ///< start at random; false: at the clean image
  Searching attack = Searching::fab;
};

constexpr int kFabImages = 3;   ///< arrays of the size of the images that FAB takes of the scratch memory
constexpr int kFabPasses = 24;  ///< most passes of Newton's iteration; about five are needed

/// The radii of both projections, of `state` with df and w, into its rows.
template <class P>
void fab_project(P& o, const kernels::Strips& strips, const kernels::FabState<RealOf<P>>& state, const RealOf<P>* w,
                 RealOf<P>* partial) {
  using T = RealOf<P>;
  const std::int64_t count = o.n * strips.per_image(), rows = 2 * std::int64_t{o.n};
  each(o.device, count, kernels::FabOffset<T>{strips, w, o.clean, o.x_adv, partial});
  each(o.device, o.n, kernels::FabRows<T>{strips, state, partial});
  for (int pass = 0; pass < kFabPasses; ++pass) {
    each(o.device, rows * strips.per_image(), kernels::FabReach<T>{strips, state, w, o.clean, o.x_adv, partial});
    each(o.device, rows, kernels::FabNewton<T>{strips, state, partial});
  }
}

/// State of FAB beside the images, in the scratch memory after `images` arrays.
template <class P>
[[nodiscard]] kernels::FabState<RealOf<P>> fab_state(Scratch<P>& scratch, BallNorm norm) {
  const auto one = [&] { return scratch.small(); };
  const auto two = [&] { return scratch.small(2); };
  return {norm, one(), one(), one(), one(), one(), two(), two(), two(), two()};
}

/// A run of FAB. The objective's loss is class_difference.
template <class P>
void fab(P& o, const FabSettings& settings) {
  using T = RealOf<P>;
  const T overshoot = T(1.05), most = T(0.1), backward = T(0.9);
  const kernels::Strips strips{o.layout.elements()};
  const std::int64_t count = o.n * strips.per_image(), rows = 2 * std::int64_t{o.n};
  Scratch<P> scratch(o, kFabImages - 1);
  T *const w = scratch.images(), *const adversarial = scratch.images();
  const kernels::FabState<T> state = fab_state(scratch, settings.norm);
  T* const partial = scratch.rest();
  const auto scale = static_cast<T>(o.scale);
  T* const norms = settings.rank == 0 ? partial : nullptr;  // of the gradients of all classes; null: there is one

  aim(o, settings.rank);
  each(o.device, o.n, kernels::FabBegin<T>{state, o.correct, o.done});
  each(o.device, o.n * strips.elements, kernels::GivenStart<T>{o.clean, nullptr, adversarial});
  if (settings.random_start || o.start != nullptr)
    scaled_start(o, settings.attack, settings.norm, static_cast<T>(settings.eps / 2), state.nearest);
  for (int k = 0; k < settings.iterations; ++k) {
    if (k % kIterationsBetweenLooks == 0 && o.live() == 0) break;
    for (int wrong = 0; wrong < (norms != nullptr ? o.classes - 1 : 1); ++wrong) {
      if (norms != nullptr) each(o.device, o.n, kernels::WrongClass{o.labels, o.targets, wrong});
      o.gradient();
      if (norms != nullptr) each(o.device, count, kernels::FabNorm<T>{strips, settings.norm, o.dx, norms});
      each(o.device, o.n, kernels::FabNearest<T>{strips, state, o.losses, norms, scale, wrong == 0});
      each(o.device, count, kernels::FabKeepGradient<T>{strips, state, o.dx, w, scale});
    }
    fab_project(o, strips, state, w, partial);
    const T* far = state.radius;
    if (settings.norm == BallNorm::l2) {
      far = state.miss;  // in place of what was missing
      each(o.device, rows * strips.per_image(), kernels::FabMoveNorms<T>{strips, state, w, o.clean, o.x_adv, partial});
      each(o.device, rows, kernels::JoinNorms<T>{strips, partial, state.miss});
    }
    each(o.device, count, kernels::FabStep<T>{strips, state, w, o.clean, far, o.x_adv, overshoot, most});
    o.forward();
    each(o.device, count, kernels::FabDistance<T>{strips, settings.norm, o.correct, o.clean, o.x_adv, partial});
    each(o.device, o.n, kernels::FabJudge<T>{strips, state, o.correct, partial, o.done, static_cast<T>(settings.eps)});
    each(o.device, count, kernels::FabTake<T>{strips, state, o.clean, o.x_adv, adversarial, backward});
  }
  each(o.device, count, kernels::TakeResult<T>{strips, o.done, o.clean, adversarial, o.x_adv, o.eta});
}

}  // namespace dat
