#pragma once

#include <cstdint>

#include "dat/random.hpp"
#include "norms.hpp"
#include "perturb.hpp"
#include "strips.hpp"

namespace dat::kernels {

// Square: Andriushchenko, Croce, Flammarion and Hein, "Square attack: a query-efficient black-box adversarial attack
// via random search", ECCV 2020, algorithms 2 (L-infinity) and 3 (L2), in the details of its use by AutoAttack. Margins
// are z_y minus the largest other logit.

/// Window of a proposal's change of an image, and the sign of the change, by channel.
struct SquareWindow {
  int top, left;
  std::uint32_t signs;
  [[nodiscard]] DAT_HD int sign(int channel) const { return (signs >> (channel % 32) & 1U) != 0 ? 1 : -1; }
  [[nodiscard]] DAT_HD bool has(int side, int row, int column) const {
    return row >= top && row < top + side && column >= left && column < left + side;
  }
};

/// floor(U * count) with 24 bits of a random word as U in [0, 1).
[[nodiscard]] DAT_HD inline int below(std::uint32_t word, int count) {
  return static_cast<int>(std::uint64_t{word >> 8} * static_cast<std::uint64_t>(count) >> 24);
}

/// The two windows of a proposal in the L2 ball: the first gets a new pattern and the size of both, the second nothing.
struct SquarePair {
  SquareWindow first, second;
  bool transposed;  // the pattern
};

/// The random numbers of one run, by sample and iteration: they do not depend on the batch.
struct SquareDraws {
  const std::int64_t* sample_ids;  // [n]
  std::uint64_t seed;              // seed of the run
  Purpose purpose;

  /// The window of an iteration, `side` pixels high and wide, or its second one. Its offsets are below size - side, and
  /// never size - side itself, as in the public code: no window touches the last row or column.
  [[nodiscard]] DAT_HD SquareWindow window(std::int64_t n, std::uint32_t iteration, int side, const Layout& layout,
                                           std::uint32_t index = 0) const {
    const Philox4 words = of_iteration(n, iteration, index);
    return {below(words.v[0], layout.h - side), below(words.v[1], layout.w - side), words.v[2]};
  }
  [[nodiscard]] DAT_HD SquarePair pair(std::int64_t n, std::uint32_t iteration, int side, const Layout& layout) const {
    return {window(n, iteration, side, layout), window(n, iteration, side, layout, 1),
            (of_iteration(n, iteration, 0).v[3] & 1U) != 0};
  }
  [[nodiscard]] DAT_HD Philox4 of_iteration(std::int64_t n, std::uint32_t iteration, std::uint32_t index) const {
    return random_words(seed, purpose, 1 + iteration, static_cast<std::uint64_t>(sample_ids[n]), index);
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
    for (int column = 0; column < layout.w; ++column) {
      const std::int64_t stripe = std::int64_t{row.c} * layout.w + column;
      const Philox4 words = draws.stripes(row.n, stripe / 128);
      const bool up = (words.v[stripe % 128 / 32] >> (stripe % 32) & 1U) != 0;
      const std::int64_t at = row.begin + column * row.stride;
      best[at] = x_adv[at] = clamp(up ? x[at] + eps : x[at] - eps, T{0}, T{1});
    }
  }
};

/// The pattern of a window of the L2 ball, of norm 1: two pyramids beside each other, of opposite signs (eta in the
/// public code, square.py). In a pyramid of height rows and side columns, the pixel at distance m from the middle, the
/// larger of its rows and columns, has 1/(m + 1)^2 + ... + 1/K^2, K = side/2 + 1, divided by the pyramid's norm.
/// pattern [side][side]. Runs over its pixels.
template <class T>
struct SquarePattern {
  int side;
  T* pattern;
  DAT_HD void operator()(std::int64_t i) const {
    const int row = static_cast<int>(i) / side, column = static_cast<int>(i) % side, upper = side / 2;
    const int height = row < upper ? upper : side - upper, middle = height / 2, centre = side / 2;
    const int down = row - (row < upper ? 0 : upper) - middle, across = column - centre;
    const int away = larger(larger(down, -down), larger(across, -across));
    // From the outermost ring inwards: what a ring has, and how many pixels.
    double value = 0, mine = 0, squares = 0;
    for (int ring = centre; ring >= 0; --ring) {
      value += 1.0 / ((ring + 1.0) * (ring + 1.0));
      squares += (area(ring, height) - (ring > 0 ? area(ring - 1, height) : 0)) * value * value;
      if (ring == away) mine = value;
    }
    if (upper > 0) squares *= 2;  // both pyramids
    pattern[i] = static_cast<T>((row < upper ? mine : -mine) / std::sqrt(squares));
  }
  /// Pixels of a pyramid that are no further than `ring` from its middle.
  [[nodiscard]] DAT_HD double area(int ring, int height) const {
    return double(extent(ring, height)) * extent(ring, side);
  }
  [[nodiscard]] static DAT_HD int extent(int ring, int size) {
    const int low = size / 2 - ring, high = size / 2 + ring + 1;
    return smaller(high, size) - larger(low, 0);
  }
};

/// Plane c of image n, of i = n * channels + c: its pixels in rows, whatever the layout.
struct ImagePlane {
  Layout layout;
  std::int64_t n;
  int c;
  DAT_HD ImagePlane(const Layout& of, std::int64_t i) : layout(of), n(i / of.c), c(static_cast<int>(i % of.c)) {}
  [[nodiscard]] DAT_HD std::int64_t at(int y, int x) const { return layout.offset(n, c, y, x); }
};

/// The start in the L2 ball, before it is scaled: the image is tiled with patterns, each turned and with signs of its
/// own by channel; what is left over at the edges stays 0. sizes [n][channels]: norms of the planes. Runs over the
/// planes.
template <class T>
struct SquareTiles {
  SquareDraws draws;
  Layout layout;
  const T* pattern;
  T *move, *sizes;
  int side, begin;
  DAT_HD void operator()(std::int64_t i) const {
    const ImagePlane plane(layout, i);
    for (int y = 0; y < layout.h; ++y)
      for (int x = 0; x < layout.w; ++x) move[plane.at(y, x)] = 0;
    NormSum sum{BallNorm::l2};
    std::int64_t tile = 0;
    for (int top = begin; top + side <= layout.h; top += side)
      for (int left = begin; left + side <= layout.w; left += side, ++tile) {
        const Philox4 words = draws.stripes(plane.n, tile);
        const SquareWindow signs{top, left, words.v[0]};
        const bool transposed = (words.v[1] & 1U) != 0;
        for (int y = 0; y < side; ++y)
          for (int x = 0; x < side; ++x) {
            const T value = static_cast<T>(signs.sign(plane.c)) * pattern[transposed ? x * side + y : y * side + x];
            move[plane.at(top + y, left + x)] = value;
            sum.add(value);
          }
      }
    sizes[i] = static_cast<T>(sum.value());
  }
};

/// A proposal in the L2 ball. It takes two passes over the planes, since norms are needed on the way.
template <class T>
struct SquareProposal {
  static constexpr int kNorms = 4;
  SquareDraws draws;
  Layout layout;
  const T *x, *best, *pattern;
  std::uint32_t iteration;
  int side;
  const std::int32_t* done;

  [[nodiscard]] DAT_HD SquarePair windows(std::int64_t n) const { return draws.pair(n, iteration, side, layout); }
  /// The new pattern and the old one, `old` being its norm, at a pixel of the first window.
  [[nodiscard]] DAT_HD T mixed(const SquarePair& pair, const ImagePlane& plane, int row, int column, T old) const {
    const int y = row - pair.first.top, across = column - pair.first.left;
    const T fresh = pattern[pair.transposed ? across * side + y : y * side + across];
    const std::int64_t at = plane.at(row, column);
    return static_cast<T>(pair.first.sign(plane.c)) * fresh + (best[at] - x[at]) / (T(1e-12) + old);
  }
};

/// Norms of the planes for a proposal: [n][channels][kNorms] of the move so far, of its parts in both windows and in
/// the first one, and of the first one's new pattern and old one together. Runs over the planes.
template <class T>
struct SquareMeasure {
  SquareProposal<T> proposal;
  T* norms;
  DAT_HD void operator()(std::int64_t i) const {
    const Layout& layout = proposal.layout;
    const ImagePlane plane(layout, i);
    if (proposal.done[plane.n] != 0) return;  // nobody takes its proposal
    const SquarePair pair = proposal.windows(plane.n);
    NormSum move{BallNorm::l2}, windows{BallNorm::l2}, first{BallNorm::l2}, both{BallNorm::l2};
    for (int row = 0; row < layout.h; ++row)
      for (int column = 0; column < layout.w; ++column) {
        const std::int64_t at = plane.at(row, column);
        const T moved = proposal.best[at] - proposal.x[at];
        const bool inside = pair.first.has(proposal.side, row, column);
        move.add(moved);
        if (inside) first.add(moved);
        if (inside || pair.second.has(proposal.side, row, column)) windows.add(moved);
      }
    const T old = static_cast<T>(first.value());
    for (int row = pair.first.top; row < pair.first.top + proposal.side; ++row)
      for (int column = pair.first.left; column < pair.first.left + proposal.side; ++column)
        both.add(proposal.mixed(pair, plane, row, column, old));
    T* const mine = norms + SquareProposal<T>::kNorms * i;
    mine[0] = static_cast<T>(move.value());
    mine[1] = static_cast<T>(windows.value());
    mine[2] = old;
    mine[3] = static_cast<T>(both.value());
  }
};

/// The move of a proposal before it is scaled: nothing in the second window; in each channel of the first one both
/// patterns, with the norm of its move in both windows and of its share of what the ball has left. sizes [n][channels]:
/// norms of the planes. Runs over the planes.
template <class T>
struct SquareMove {
  SquareProposal<T> proposal;
  const T* norms;  // norms of SquareMeasure
  T *move, *sizes;
  T eps;
  DAT_HD void operator()(std::int64_t i) const {
    constexpr int kNorms = SquareProposal<T>::kNorms;
    const Layout& layout = proposal.layout;
    const ImagePlane plane(layout, i);
    if (proposal.done[plane.n] != 0) return;
    const SquarePair pair = proposal.windows(plane.n);
    NormSum image{BallNorm::l2}, size{BallNorm::l2};
    for (int c = 0; c < layout.c; ++c) image.add(norms[kNorms * (plane.n * layout.c + c)]);
    const double left = double{eps} * double{eps} - image.total, windows = norms[kNorms * i + 1];
    const auto wanted = static_cast<T>(std::sqrt(larger(left, 0.0) / layout.c + windows * windows));
    const T old = norms[kNorms * i + 2], factor = wanted / (T(1e-12) + norms[kNorms * i + 3]);
    for (int row = 0; row < layout.h; ++row)
      for (int column = 0; column < layout.w; ++column) {
        const std::int64_t at = plane.at(row, column);
        const T moved = pair.first.has(proposal.side, row, column)
                            ? proposal.mixed(pair, plane, row, column, old) * factor
                        : pair.second.has(proposal.side, row, column) ? T{0}
                                                                      : proposal.best[at] - proposal.x[at];
        move[at] = moved;
        size.add(moved);
      }
    sizes[i] = static_cast<T>(size.value());
  }
};

/// x_adv = clamp(x + eps * move / (||move|| + 1e-12), 0, 1), where the move is in x_adv. Runs over the strips.
template <class T>
struct SquareScale {
  Strips strips;
  int channels;
  const T *x, *sizes;
  T* x_adv;
  T eps;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    NormSum sum{BallNorm::l2};
    for (int c = 0; c < channels; ++c) sum.add(sizes[strip.image * channels + c]);
    const T factor = eps / (static_cast<T>(sum.value()) + T(1e-12));
    for (std::int64_t e = strip.begin; e < strip.end; ++e) x_adv[e] = clamp(x[e] + x_adv[e] * factor, T{0}, T{1});
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
  const T *x, *best;
  T* x_adv;
  T eps;
  std::uint32_t iteration;
  int side;
  DAT_HD void operator()(std::int64_t i) const {
    const ImageRow row(layout, i);
    const SquareWindow window = draws.window(row.n, iteration, side, layout);
    const T move = 2 * eps * static_cast<T>(window.sign(row.c));
    for (int column = 0; column < layout.w; ++column) {
      const std::int64_t at = row.begin + column * row.stride;
      const bool moved = window.has(side, row.y, column);
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
