#pragma once

#include <cstdint>

#include "dat/random.hpp"
#include "perturb.hpp"
#include "strips.hpp"

namespace dat::kernels {

// Square: Andriushchenko, Croce, Flammarion and Hein, "Square attack: a query-efficient black-box adversarial attack
// via random search", ECCV 2020, in the L-infinity ball, in the details of its use by AutoAttack. Margins are z_y minus
// the largest other logit.

/// Where a proposal changes an image, and the sign of the change, by channel.
struct SquareWindow {
  int top, left;
  std::uint32_t signs;
  [[nodiscard]] DAT_HD int sign(int channel) const { return (signs >> (channel % 32) & 1U) != 0 ? 1 : -1; }
};

/// floor(U * count) with 24 bits of a random word as U in [0, 1).
[[nodiscard]] DAT_HD inline int below(std::uint32_t word, int count) {
  return static_cast<int>(std::uint64_t{word >> 8} * static_cast<std::uint64_t>(count) >> 24);
}

/// The random numbers of one run, by sample and iteration: they do not depend on the batch.
struct SquareDraws {
  const std::int64_t* sample_ids;  // [n]
  std::uint64_t seed;              // of the run
  Purpose purpose;

  /// The window of an iteration, `side` pixels high and wide. Its offsets are below size - side, and never size - side
  /// itself, as in the public code: no window touches the last row or column.
  [[nodiscard]] DAT_HD SquareWindow window(std::int64_t n, std::uint32_t iteration, int side,
                                           const Layout& layout) const {
    const Philox4 words = random_words(seed, purpose, 1 + iteration, static_cast<std::uint64_t>(sample_ids[n]), 0);
    return {below(words.v[0], layout.h - side), below(words.v[1], layout.w - side), words.v[2]};
  }
  /// Signs of the start's stripes 128 * index .. 128 * index + 127, counted channel by channel.
  [[nodiscard]] DAT_HD Philox4 stripes(std::int64_t n, std::int64_t index) const {
    return random_words(seed, purpose, 0, static_cast<std::uint64_t>(sample_ids[n]), static_cast<std::uint32_t>(index));
  }
};

/// Row y of channel c of image n, of i = (n * h + y) * channels + c: its first element, and the next ones' distance.
struct ImageRow {
  std::int64_t n, begin, stride;
  int c, y;
  DAT_HD ImageRow(const Layout& layout, std::int64_t i) {
    c = static_cast<int>(i % layout.c);
    const std::int64_t line = i / layout.c;
    y = static_cast<int>(line % layout.h);
    n = line / layout.h;
    begin = layout.offset(n, c, y, 0);
    stride = layout.block;
  }
};

/// The start: vertical stripes, x_adv = best = clamp(x + eps * s, 0, 1) with a sign s for each channel and column. Runs
/// over the rows.
template <class T>
struct SquareStart {
  SquareDraws draws;
  Layout layout;
  const T* x;
  T *best, *x_adv;
  T eps;
  DAT_HD void operator()(std::int64_t i) const {
    const ImageRow row(layout, i);
    Philox4 words{};
    for (int column = 0; column < layout.w; ++column) {
      const std::int64_t stripe = std::int64_t{row.c} * layout.w + column;
      if (column == 0 || stripe % 128 == 0) words = draws.stripes(row.n, stripe / 128);
      const bool up = (words.v[stripe % 128 / 32] >> (stripe % 32) & 1U) != 0;
      const std::int64_t at = row.begin + column * row.stride;
      best[at] = x_adv[at] = clamp(up ? x[at] + eps : x[at] - eps, T{0}, T{1});
    }
  }
};

/// The margins at the start: an image whose margin is not above 0 is done with. Runs over the images.
template <class T>
struct SquareBegin {
  const T* losses;  // the largest other logit minus z_y
  T* margin;
  std::int32_t* done;
  DAT_HD void operator()(std::int64_t n) const {
    margin[n] = -losses[n];
    done[n] = margin[n] <= 0 ? 1 : 0;
  }
};

/// x_adv = the best image so far, moved by 2 eps up or down in the iteration's window, inside the ball and the box.
/// Runs over the rows.
template <class T>
struct SquarePropose {
  SquareDraws draws;
  Layout layout;
  const std::int32_t* done;
  const T *x, *best;
  T* x_adv;
  T eps;
  std::uint32_t iteration;
  int side;
  DAT_HD void operator()(std::int64_t i) const {
    const ImageRow row(layout, i);
    if (done[row.n] != 0) return;
    const SquareWindow window = draws.window(row.n, iteration, side, layout);
    const bool inside = row.y >= window.top && row.y < window.top + side;
    const T move = 2 * eps * static_cast<T>(window.sign(row.c));
    for (int column = 0; column < layout.w; ++column) {
      const std::int64_t at = row.begin + column * row.stride;
      const bool moved = inside && column >= window.left && column < window.left + side;
      x_adv[at] = moved ? clamp(clamp(best[at] + move, x[at] - eps, x[at] + eps), T{0}, T{1}) : best[at];
    }
  }
};

/// Accepts what lowers the margin, or makes it 0 or less: then the image is done with. Runs over the images.
template <class T>
struct SquareJudge {
  const T* losses;
  T *margin, *accepted;
  std::int32_t* done;
  DAT_HD void operator()(std::int64_t n) const {
    const T proposed = -losses[n];
    const bool accept = done[n] == 0 && (proposed < margin[n] || proposed <= 0);
    accepted[n] = accept ? T{1} : T{0};
    if (!accept) return;
    margin[n] = proposed;
    if (proposed <= 0) done[n] = 1;
  }
};

/// Keeps what has been accepted. Runs over the strips.
template <class T>
struct SquareKeep {
  Strips strips;
  const T *accepted, *x_adv;
  T* best;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    if (accepted[strip.image] == 0) return;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) best[e] = x_adv[e];
  }
};

}  // namespace dat::kernels
