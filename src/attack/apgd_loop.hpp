#pragma once

#include <algorithm>

#include "apgd.hpp"
#include "attack/attacks.hpp"
#include "attack/l2.hpp"
#include "margin.hpp"

namespace dat {

struct ApgdSettings {
  BallNorm norm = BallNorm::linf;
  double eps = 0;
  int iterations = 100;
  int rank = 0;  ///< rank of the target among the logits of the clean image; 0: no target
  Searching attack = Searching::apgd_ce;
  bool best_loss = false;  ///< AttackOptions::best_loss
};

/// The checkpoints of APGD: windows of 22 %, then 3 % less each time down to 6 % of the iterations.
class ApgdWindows {
 public:
  explicit ApgdWindows(int iterations)
      : window_(share(iterations, 22)), least_(share(iterations, 6)), less_(share(iterations, 3)) {}
  /// The length of the window that ends with the next iteration; 0: no window ends.
  [[nodiscard]] int next() {
    if (++since_ < window_) return 0;
    const int ended = window_;
    window_ = std::max(window_ - less_, least_);
    since_ = 0;
    return ended;
  }

 private:
  [[nodiscard]] static int share(int iterations, int percent) { return std::max(percent * iterations / 100, 1); }
  int window_, least_, less_, since_ = 0;
};

/// Arrays of the size of the images that APGD takes of the scratch memory.
[[nodiscard]] constexpr int apgd_images(BallNorm norm) { return norm == BallNorm::l2 ? 5 : 4; }
constexpr int kIterationsBetweenLooks = 4;

/// The random start of a run, `reach` away but for the box, or the one that the objective brings.
template <class P>
void scaled_start(P& o, Searching attack, BallNorm norm, RealOf<P> reach, RealOf<P>* size) {
  using T = RealOf<P>;
  if (o.start != nullptr)
    return each(o.device, o.n * o.layout.elements(), kernels::GivenStart<T>{o.clean, o.start, o.x_adv});
  const kernels::StartNoise noise{norm, o.sample_ids, o.layout, run_key(o, attack), o.purpose};
  each(o.device, o.n, kernels::NoiseSize<T>{noise, size});
  each(o.device, o.n * o.layout.fours(), kernels::ScaledStart<T>{noise, o.clean, size, o.x_adv, reach});
}

/// The classes of rank `rank` at the clean images to targets, and the clean images' logits and correctness.
template <class P>
void aim(P& o, int rank) {
  using T = RealOf<P>;
  each(o.device, o.n * o.layout.elements(), kernels::GivenStart<T>{o.clean, nullptr, o.x_adv});
  each(o.device, o.n, kernels::WrongClass{o.labels, o.targets, 0});  // for a loss that reads them
  o.forward();
  each(o.device, o.n, kernels::TargetOfRank<T>{o.logits, o.targets, o.classes, rank});
}

/// The next iterate in the L2 ball; move: an array of images.
template <class P>
void apgd_step_in_l2(P& o, const kernels::ApgdOrigin<RealOf<P>>& origin, L2Norms<P>& norms, RealOf<P>* move,
                     RealOf<P> eps, RealOf<P> inertia) {
  using T = RealOf<P>;
  const kernels::Strips strips{o.layout.elements()};
  const std::int64_t count = o.n * strips.per_image();
  each(o.device, count, kernels::ApgdGradientNorms<T>{strips, origin, norms.partial()});
  each(o.device, count, kernels::ApgdMoveL2<T>{strips, origin, o.clean, norms.join(), move, norms.tiny()});
  each(o.device, count, kernels::ApgdMixL2<T>{strips, origin, o.clean, norms.of(move), move, o.eta, eps, inertia});
  each(o.device, count, kernels::ProjectL2<T>{strips, o.clean, norms.of(move), move, o.x_adv, eps});
}

/// A run of auto-PGD on the objective's loss.
template <class P>
void apgd(P& o, const ApgdSettings& settings) {
  using T = RealOf<P>;
  const auto eps = static_cast<T>(settings.eps);
  const kernels::Strips strips{o.layout.elements()};
  const std::int64_t count = o.n * strips.per_image();
  const bool l2 = settings.norm == BallNorm::l2;
  Scratch<P> scratch(o, apgd_images(settings.norm) - 1);
  T *const best = scratch.images(), *const best_gradient = scratch.images(), *const adversarial = scratch.images();
  T* const move = l2 ? scratch.images() : nullptr;
  const kernels::ApgdState<T> state{scratch.small(), scratch.small(), scratch.small(), scratch.small(), scratch.small(),
                                    scratch.small(), scratch.small(), scratch.small(), scratch.small()};
  const kernels::ApgdKeep<T> keep{strips, state, o.x_adv, o.dx, best, best_gradient, adversarial};
  const kernels::ApgdOrigin<T> origin{state, o.x_adv, o.dx, best, best_gradient};
  L2Norms<P> norms(o, scratch);

  if (settings.rank > 0) aim(o, settings.rank);
  scaled_start(o, settings.attack, settings.norm, eps, state.step);
  each(o.device, o.n * strips.elements, kernels::GivenStart<T>{o.x_adv, nullptr, o.eta});  // eta: the iterate before
  o.gradient();
  each(o.device, o.n, kernels::ApgdBegin<T>{state, o.losses, o.correct, o.done, 2 * eps});
  each(o.device, count, keep);
  ApgdWindows windows(settings.iterations);
  for (int k = 0; k < settings.iterations; ++k) {
    if (!settings.best_loss && k % kIterationsBetweenLooks == 0 && o.live() == 0) break;
    const auto inertia = static_cast<T>(k == 0 ? 1 : 0.75);
    if (l2)
      apgd_step_in_l2(o, origin, norms, move, eps, inertia);
    else
      each(o.device, count, kernels::ApgdStep<T>{strips, origin, o.clean, o.x_adv, o.eta, eps, inertia});
    o.gradient();
    each(o.device, o.n, kernels::ApgdJudge<T>{state, o.losses, o.correct, o.done, windows.next()});
    each(o.device, count, keep);
  }
  each(o.device, count,
       kernels::TakeResult<T>{strips, settings.best_loss ? nullptr : o.done, o.clean,
                              settings.best_loss ? best : adversarial, o.x_adv, o.eta});
}

}  // namespace dat
