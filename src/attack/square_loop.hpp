#pragma once

#include <algorithm>
#include <cmath>

#include "attack/attacks.hpp"
#include "square.hpp"

namespace dat {

struct SquareSettings {
  double eps = 0;
  int iterations = 5000;
};

/// The side of the window: that of a square with the share p of the image's pixels, where p is 0.8 up to iteration 10
/// and then halved behind iterations 10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000, whatever the number of iterations.
[[nodiscard]] inline int square_side(int iteration, int height, int width) {
  double share = 0.8;
  for (const int behind : {10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000})
    if (iteration > behind) share /= 2;
  const int side = static_cast<int>(std::nearbyint(std::sqrt(share * height * width)));  // half to even
  return std::clamp(side, 1, std::min(height, width));
}

constexpr int kSquareImages = 2;  ///< of scratch memory
constexpr int kProposalsBetweenLooks = 10;

/// A run of Square. The objective's loss is margin.
template <class P>
void square(P& o, const SquareSettings& settings) {
  using T = RealOf<P>;
  const auto eps = static_cast<T>(settings.eps);
  const Layout& layout = o.layout;
  const kernels::Strips strips{layout.elements()};
  const std::int64_t rows = std::int64_t{o.n} * layout.h * layout.c, count = o.n * strips.per_image();
  Scratch<P> scratch(o, kSquareImages - 1);
  T* const best = scratch.images();
  T *const margins = scratch.small(), *const accepted = scratch.small();
  const kernels::SquareDraws draws{o.sample_ids, run_key(o, Searching::square), o.purpose};

  each(o.device, rows, kernels::SquareStart<T>{draws, layout, o.clean, best, o.x_adv, eps});
  o.forward();
  each(o.device, o.n, kernels::SquareBegin<T>{o.losses, margins, o.done});
  for (int k = 0; k < settings.iterations; ++k) {
    if (k % kProposalsBetweenLooks == 0 && o.live() == 0) break;
    each(o.device, rows,
         kernels::SquarePropose<T>{draws, layout, o.done, o.clean, best, o.x_adv, eps, static_cast<std::uint32_t>(k),
                                   square_side(k, layout.h, layout.w)});
    o.forward();
    each(o.device, o.n, kernels::SquareJudge<T>{o.losses, margins, accepted, o.done});
    each(o.device, count, kernels::SquareKeep<T>{strips, accepted, o.x_adv, best});
  }
  each(o.device, count, kernels::TakeResult<T>{strips, o.done, o.clean, best, o.x_adv, o.eta});
}

}  // namespace dat
