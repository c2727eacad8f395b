#pragma once

#include "apgd.hpp"
#include "attack/attacks.hpp"
#include "norms.hpp"

namespace dat {

/// Arrays of the size of the images that a start and steps in the L2 ball take of the scratch memory.
constexpr int kL2Images = 1;

/// L2 norms of the images of arrays, one array after the other, in the scratch memory.
template <class P>
class L2Norms {
 public:
  L2Norms(P& o, Scratch<P>& scratch)
      : o_(o), strips_{o.layout.elements()}, partial_(scratch.small(strips_.per_image())), norms_(scratch.small()) {}
  /// The norms [n] of an array of images; valid until the next call.
  [[nodiscard]] const RealOf<P>* of(const RealOf<P>* images) {
    each(o_.device, o_.n * strips_.per_image(), kernels::StripNorms<RealOf<P>>{strips_, images, partial_});
    return join();
  }
  /// The norms of the arrays whose strips' norms are in partial(); [n] each, valid until the next call.
  [[nodiscard]] const RealOf<P>* join() {
    each(o_.device, o_.n, kernels::JoinNorms<RealOf<P>>{strips_, partial_, norms_});
    return norms_;
  }
  [[nodiscard]] RealOf<P>* partial() { return partial_; }
  /// Addend of gradients' norms, in units of the gradients.
  [[nodiscard]] RealOf<P> tiny() const { return static_cast<RealOf<P>>(1e-12) * o_.scale; }

 private:
  P& o_;
  kernels::Strips strips_;
  RealOf<P>*partial_, *norms_;
};

/// A random start at the distance eps, but for the box: normal numbers, scaled. x_adv = x + eta.
template <class P>
void start_in_l2(P& o, RealOf<P> eps) {
  using T = RealOf<P>;
  Scratch<P> scratch(o);
  T* const size = scratch.small();
  const std::int64_t elements = o.layout.elements();
  const kernels::Strips strips{elements};
  const kernels::StartNoise noise{BallNorm::l2, o.sample_ids, o.layout, o.seed, o.purpose, o.time};
  each(o.device, o.n, kernels::NoiseSize<T>{noise, size});
  each(o.device, o.n * o.layout.fours(), kernels::ScaledStart<T>{noise, o.clean, size, o.x_adv, eps});
  each(o.device, o.n * strips.per_image(), kernels::TakeResult<T>{strips, nullptr, o.clean, o.x_adv, o.x_adv, o.eta});
  each(o.device, o.n * elements,
       kernels::GivenStart<T>{o.clean, o.eta, o.x_adv});  // x_adv is the image with the rounded eta
}

/// An iteration of PGD in the L2 ball with the gradient that is in o.dx: a step of length alpha along it, then ball and
/// box (kernels::NormalizedStep, kernels::ProjectL2). A gradient of 0 moves nothing.
template <class P>
void l2_step(P& o, RealOf<P> alpha, RealOf<P> eps) {
  using T = RealOf<P>;
  Scratch<P> scratch(o);
  L2Norms<P> norms(o, scratch);
  const kernels::Strips strips{o.layout.elements()};
  const std::int64_t count = o.n * strips.per_image();
  each(o.device, count, kernels::NormalizedStep<T>{strips, o.dx, norms.of(o.dx), o.eta, alpha, norms.tiny()});
  each(o.device, count, kernels::ProjectL2<T>{strips, o.clean, norms.of(o.eta), o.eta, o.x_adv, eps});
}

}  // namespace dat
