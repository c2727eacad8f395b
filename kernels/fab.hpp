#pragma once

#include <cstdint>

#include "norms.hpp"
#include "perturb.hpp"
#include "strips.hpp"

namespace dat::kernels {

// Fast Adaptive Boundary: Croce and Hein, "Minimally distorted adversarial examples with a fast adaptive boundary
// attack", ICML 2020, in the details of its use by AutoAttack. An iteration takes the plane {q : <w, q> = c} on which
// the linearised difference df of two logits vanishes, w = its gradient at p, c = <w, p> - df, and projects p and the
// clean image x onto it, inside the box [0, 1]. What is one number per image is [n]; rows are [2n]: row 2k projects p
// of image k, row 2k + 1 its x. `partial` has three numbers for each row and strip.

/// State of FAB for each image.
template <class T>
struct FabState {
  BallNorm norm;
  T *df, *nearest;                    // df and distance by the dual norm of the chosen plane
  T* distance;                        // distance of the best adversarial image so far
  T *take, *back;                     // 1: what has just happened
  T *miss, *side, *radius, *settled;  // numbers of each row
  static constexpr int kSums = 3;     // sums of each row and strip in `partial`
};

/// Images that are misclassified from the start are done with. Runs over the images.
template <class T>
struct FabBegin {
  FabState<T> state;
  const T* correct;
  std::int32_t* done;
  DAT_HD void operator()(std::int64_t n) const {
    state.distance[n] = T(HUGE_VAL);
    done[n] = correct[n] == 0 ? 1 : 0;
  }
};

/// Dual norms of dx. Runs over the strips.
template <class T>
struct FabNorm {
  Strips strips;
  BallNorm norm;
  const T* dx;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    DualSum sum{{norm}};
    for (std::int64_t e = strip.begin; e < strip.end; ++e) sum.add(dx[e]);
    partial[i] = static_cast<T>(sum.value());
  }
};

/// Choice of the nearest plane: takes this class's where it is nearer than those of the classes before: |df| / (||w|| +
/// 1e-12), in the dual norm. partial null: there is one class. Runs over the images.
template <class T>
struct FabNearest {
  Strips strips;
  FabState<T> state;
  const T *losses, *partial;
  T scale;     // scale of dx
  bool first;  // true: the first of the classes
  DAT_HD void operator()(std::int64_t n) const {
    DualSum sum{{state.norm}};
    if (partial != nullptr)
      for (std::int64_t k = 0; k < strips.per_image(); ++k) sum.add(partial[n * strips.per_image() + k]);
    const T df = losses[n], far = std::fabs(df) / (static_cast<T>(sum.value()) / scale + T(1e-12));
    const bool take = first || far < state.nearest[n];
    state.take[n] = take ? T{1} : T{0};
    if (!take) return;
    state.nearest[n] = far;
    state.df[n] = df;
  }
};

/// w = dx / scale of the class taken. Runs over the strips.
template <class T>
struct FabKeepGradient {
  Strips strips;
  FabState<T> state;
  const T* dx;
  T* w;
  T scale;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    if (state.take[strip.image] == 0) return;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) w[e] = dx[e] / scale;
  }
};

/// Sums of w * (x - p). Runs over the strips.
template <class T>
struct FabOffset {
  Strips strips;
  const T *w, *x, *p;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    double total = 0;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) total += double{w[e]} * (double{x[e]} - double{p[e]});
    partial[i] = static_cast<T>(total);
  }
};

/// The rows' distances from the plane, <w, q> - c: df for p, df + <w, x - p> for x. Runs over the images.
template <class T>
struct FabRows {
  Strips strips;
  FabState<T> state;
  const T* partial;
  DAT_HD void operator()(std::int64_t n) const {
    double offset = 0;
    for (std::int64_t k = 0; k < strips.per_image(); ++k) offset += partial[n * strips.per_image() + k];
    for (int which = 0; which < 2; ++which) {
      const std::int64_t row = 2 * n + which;
      const T miss = which == 0 ? state.df[n] : static_cast<T>(state.df[n] + offset);
      state.side[row] = miss >= 0 ? T{1} : T{-1};
      state.miss[row] = std::fabs(miss);
      state.radius[row] = state.settled[row] = 0;
    }
  }
};

/// Distance that a pixel q can move towards the plane before it leaves the box.
template <class T>
[[nodiscard]] DAT_HD inline T fab_room(T q, T w, T side) {
  return w * side < 0 ? 1 - q : q;
}
/// Distance that a pixel moves for each unit of the row's radius: all pixels alike in L-infinity, along w in L2. 0: it
/// stands still, in L2 as in the public code (fab_projections.py) below 1e-8.
template <class T>
[[nodiscard]] DAT_HD inline T fab_speed(T w, BallNorm norm) {
  const T size = std::fabs(w);
  if (norm == BallNorm::l2) return size < T(1e-8) ? T{0} : size;
  return size == 0 ? T{0} : T{1};
}
/// Distance that it moves, with its sign, at this radius.
template <class T>
[[nodiscard]] DAT_HD inline T fab_move(T q, T w, T side, T radius, BallNorm norm) {
  const T speed = fab_speed(w, norm);
  if (speed == 0) return 0;
  const T size = smaller(radius * speed, fab_room(q, w, side));
  return w * side < 0 ? size : -size;
}

// The projection is the least radius r with sum |w| min(r * speed, room) = miss: in L-infinity the largest move of a
// pixel, in L2 the factor of w. The sum is concave and piecewise linear in r, so Newton's iteration from r = 0 climbs
// to it from below and ends there exactly, once no further pixel has reached its face. If it is cut off before, the
// product of what is still missing and of the slope has fallen by four with every pass (convexity: the quotients of
// both from pass to pass add up to 1 at most). There is nothing to sort.

/// The sums of a row at its radius: what pixels at their faces contribute, the slope of the others, and the radius at
/// which all would be there. Runs over the strips of all rows: strip k of row r is r * per_image + k.
template <class T>
struct FabReach {
  Strips strips;
  FabState<T> state;
  const T *w, *x, *p;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t per_image = strips.per_image(), row = i / per_image;
    if (state.settled[row] != 0) return;
    const Strips::Strip strip = strips.at(row / 2 * per_image + i % per_image);
    const T* q = row % 2 == 0 ? p : x;
    const T side = state.side[row], radius = state.radius[row];
    double fixed = 0, slope = 0;
    T most = 0;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      const T size = std::fabs(w[e]), room = fab_room(q[e], w[e], side);
      const T speed = fab_speed(w[e], state.norm);
      if (speed == 0) continue;
      if (room <= radius * speed)
        fixed += double{size} * double{room};
      else
        slope += double{size} * double{speed};
      most = larger(room / speed, most);
    }
    T* sums = partial + FabState<T>::kSums * i;
    sums[0] = static_cast<T>(fixed);
    sums[1] = static_cast<T>(slope);
    sums[2] = most;
  }
};

/// A pass of Newton's iteration. A plane that cannot be reached ends with every pixel at its face. Runs over the rows.
template <class T>
struct FabNewton {
  Strips strips;
  FabState<T> state;
  const T* partial;
  DAT_HD void operator()(std::int64_t row) const {
    if (state.settled[row] != 0) return;  // the sums are those that have settled it
    const T* sums = partial + FabState<T>::kSums * row * strips.per_image();
    double fixed = 0, slope = 0;
    T most = 0;
    for (std::int64_t k = 0; k < strips.per_image(); ++k, sums += FabState<T>::kSums) {
      fixed += sums[0];
      slope += sums[1];
      most = larger(sums[2], most);
    }
    const T next = smaller(slope > 0 ? static_cast<T>((state.miss[row] - fixed) / slope) : most, most);
    if (next > state.radius[row])
      state.radius[row] = next;
    else
      state.settled[row] = 1;
  }
};

/// L2 norms of the rows' moves. Runs over the strips of all rows, as FabReach.
template <class T>
struct FabMoveNorms {
  Strips strips;
  FabState<T> state;
  const T *w, *x, *p;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t per_image = strips.per_image(), row = i / per_image;
    const Strips::Strip strip = strips.at(row / 2 * per_image + i % per_image);
    const T* q = row % 2 == 0 ? p : x;
    NormSum sum{BallNorm::l2};
    for (std::int64_t e = strip.begin; e < strip.end; ++e)
      sum.add(fab_move(q[e], w[e], state.side[row], state.radius[row], state.norm));
    partial[i] = static_cast<T>(sum.value());
  }
};

/// p = (1 - a)(p + overshoot * d_p) + a(x + overshoot * d_x), inside the box, with the moves d onto the plane, and a =
/// ||d_p|| / (||d_p|| + ||d_x||), `most` at most. Runs over the strips.
template <class T>
struct FabStep {
  Strips strips;
  FabState<T> state;
  const T *w, *x;
  const T* far;  // ||d|| of each row
  T* p;
  T overshoot, most;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const std::int64_t row = 2 * strip.image;
    const T side_p = state.side[row], side_x = state.side[row + 1];
    const T radius_p = state.radius[row], radius_x = state.radius[row + 1];
    const T far_p = larger(far[row], T(1e-8)), far_x = larger(far[row + 1], T(1e-8));
    const T a = smaller(far_p / (far_p + far_x), most);
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      const T from_p = p[e] + overshoot * fab_move(p[e], w[e], side_p, radius_p, state.norm);
      const T from_x = x[e] + overshoot * fab_move(x[e], w[e], side_x, radius_x, state.norm);
      p[e] = clamp(from_p * (1 - a) + from_x * a, T{0}, T{1});
    }
  }
};

/// ||p - x||, where p is misclassified. Runs over the strips.
template <class T>
struct FabDistance {
  Strips strips;
  BallNorm norm;
  const T *correct, *x, *p;
  T* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    if (correct[strip.image] != 0) return;
    NormSum sum{norm};
    for (std::int64_t e = strip.begin; e < strip.end; ++e) sum.add(p[e] - x[e]);
    partial[i] = static_cast<T>(sum.value());
  }
};

/// Judgement of p: keeps it where it is misclassified and nearer than before. An image is done with when one is inside
/// the ball. Runs over the images.
template <class T>
struct FabJudge {
  Strips strips;
  FabState<T> state;
  const T *correct, *partial;
  std::int32_t* done;
  T eps;
  DAT_HD void operator()(std::int64_t n) const {
    state.take[n] = 0;
    state.back[n] = correct[n] == 0 ? T{1} : T{0};
    if (correct[n] != 0) return;
    NormSum sum{state.norm};
    for (std::int64_t k = 0; k < strips.per_image(); ++k) sum.add(partial[n * strips.per_image() + k]);
    const T distance = static_cast<T>(sum.value());
    if (!(distance < state.distance[n])) return;
    state.distance[n] = distance;
    if (done[n] != 0) return;
    state.take[n] = 1;
    if (distance <= eps) done[n] = 1;
  }
};

/// Keeps p where it is the nearest one, and goes from a misclassified p back towards x. Runs over the strips.
template <class T>
struct FabTake {
  Strips strips;
  FabState<T> state;
  const T* x;
  T *p, *adversarial;
  T backward;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    if (state.take[strip.image] != 0)
      for (std::int64_t e = strip.begin; e < strip.end; ++e) adversarial[e] = p[e];
    if (state.back[strip.image] != 0)
      for (std::int64_t e = strip.begin; e < strip.end; ++e) p[e] = x[e] + backward * (p[e] - x[e]);
  }
};

}  // namespace dat::kernels
