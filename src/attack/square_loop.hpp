#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#include "apgd.hpp"
#include "attack/attacks.hpp"
#include "square.hpp"

namespace dat {

struct SquareSettings {
  BallNorm norm = BallNorm::linf;
  double eps = 0;
  int iterations = 5000;
};

/// The side of the window: the side of a square with the share p of the image's pixels, where p is 0.8 up to iteration
/// 10 and then halved after iterations 10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000, whatever the number of
/// iterations.
[[nodiscard]] inline int square_side(int iteration, int height, int width) {
  double share = 0.8;
  for (const int behind : {10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000})
    if (iteration > behind) share /= 2;
  const int side = static_cast<int>(std::nearbyint(std::sqrt(share * height * width)));  // half to even
  return std::clamp(side, 1, std::min(height, width));
}

/// The side of the window in the L2 ball, made of square_side(): odd, and 3 at least, where the image is no smaller.
[[nodiscard]] inline int square_side_in_l2(int iteration, int height, int width) {
  return std::min(std::max(square_side(iteration, height, width), 3) | 1, std::min(height, width));
}

/// Arrays of the size of the images that Square takes of the scratch memory.
[[nodiscard]] constexpr int square_images(BallNorm norm) { return norm == BallNorm::l2 ? 3 : 2; }
constexpr int kProposalsBetweenLooks = 10;

/// Proposals in the L2 ball, and the start, in the objective's x_adv.
template <class P>
class SquareInL2 {
 public:
  using T = RealOf<P>;
  /// `best` is the image so far. Takes one more array of images from the scratch memory.
  SquareInL2(P& o, Scratch<P>& scratch, const kernels::SquareDraws& draws, const T* best, T eps)
      : o_(o),
        draws_(draws),
        best_(best),
        eps_(eps),
        pattern_(scratch.images()),
        norms_(scratch.small(o.layout.c * kernels::SquareProposal<T>::kNorms)),
        sizes_(scratch.small(o.layout.c)) {}

  /// Five tiles beside each other, in the middle, and further ones where there is room.
  void start() {
    const int side = std::max(o_.layout.h / 5, 1), begin = std::max((o_.layout.h - 5 * side) / 2, 0);
    draw_pattern(side);
    each(o_.device, planes(), kernels::SquareTiles<T>{draws_, o_.layout, pattern_, o_.x_adv, sizes_, side, begin});
    scale();
  }
  void propose(int iteration) {
    const int side = square_side_in_l2(iteration, o_.layout.h, o_.layout.w);
    if (side != side_) draw_pattern(side);
    const kernels::SquareProposal<T> proposal{
        draws_, o_.layout, o_.clean, best_, pattern_, static_cast<std::uint32_t>(iteration), side, o_.done};
    each(o_.device, planes(), kernels::SquareMeasure<T>{proposal, norms_});
    each(o_.device, planes(), kernels::SquareMove<T>{proposal, norms_, o_.x_adv, sizes_, eps_});
    scale();
  }

 private:
  [[nodiscard]] std::int64_t planes() const { return std::int64_t{o_.n} * o_.layout.c; }
  void draw_pattern(int side) {
    side_ = side;
    each(o_.device, std::int64_t{side} * side, kernels::SquarePattern<T>{side, pattern_});
  }
  void scale() {
    const kernels::Strips strips{o_.layout.elements()};
    each(o_.device, o_.n * strips.per_image(),
         kernels::SquareScale<T>{strips, o_.layout.c, o_.clean, sizes_, o_.x_adv, eps_});
  }

  P& o_;
  kernels::SquareDraws draws_;
  const T* best_;
  T eps_;
  T *pattern_, *norms_, *sizes_;
  int side_ = 0;  ///< side of the pattern
};

/// A run of Square. The objective's loss is margin.
template <class P>
void square(P& o, const SquareSettings& settings) {
  using T = RealOf<P>;
  const auto eps = static_cast<T>(settings.eps);
  const Layout& layout = o.layout;
  const kernels::Strips strips{layout.elements()};
  const std::int64_t rows = std::int64_t{o.n} * layout.h * layout.c, count = o.n * strips.per_image();
  const bool l2 = settings.norm == BallNorm::l2;
  Scratch<P> scratch(o, square_images(settings.norm) - 1);
  T* const best = scratch.images();
  T *const margins = scratch.small(), *const accepted = scratch.small();
  const kernels::SquareDraws draws{o.sample_ids, run_key(o, Searching::square), o.purpose};
  std::optional<SquareInL2<P>> in_l2;
  if (l2) {
    in_l2.emplace(o, scratch, draws, best, eps);
    in_l2->start();
    each(o.device, o.n * strips.elements, kernels::GivenStart<T>{o.x_adv, nullptr, best});
  } else {
    each(o.device, rows, kernels::SquareStart<T>{draws, layout, o.clean, best, o.x_adv, eps});
  }
  o.forward();
  each(o.device, o.n, kernels::SquareBegin<T>{o.losses, margins, o.done});
  for (int k = 0; k < settings.iterations; ++k) {
    if (k % kProposalsBetweenLooks == 0 && o.live() == 0) break;
    if (l2)
      in_l2->propose(k);
    else
      each(o.device, rows,
           kernels::SquarePropose<T>{draws, layout, o.clean, best, o.x_adv, eps, static_cast<std::uint32_t>(k),
                                     square_side(k, layout.h, layout.w)});
    o.forward();
    each(o.device, o.n, kernels::SquareJudge<T>{o.losses, margins, accepted, o.done});
    each(o.device, count, kernels::SquareKeep<T>{strips, accepted, o.x_adv, best});
  }
  each(o.device, count, kernels::TakeResult<T>{strips, o.done, o.clean, best, o.x_adv, o.eta});
}

}  // namespace dat
