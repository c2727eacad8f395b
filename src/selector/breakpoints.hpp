#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "dat/selector.hpp"

namespace dat {

/// The probability whose logarithm, before it is clipped, is x.
inline double clip_exp(double x, double p_min) { return std::max(std::exp(std::min(x, 0.0)), p_min); }

/// Interval around a root: no breakpoint is inside. `above` is infinite where there is no breakpoint above.
struct Interval {
  double below, above;
};

/// Sorts the breakpoints of total(lambda), a sum that does not decrease, and finds the two between which it reaches the
/// budget.
template <class Total>
[[nodiscard]] Interval bracket(std::vector<double>& breakpoints, double budget, const Total& total) {
  std::ranges::sort(breakpoints);
  const auto above = std::partition_point(breakpoints.begin() + 1, breakpoints.end(),
                                          [&](double lambda) { return total(lambda) <= budget; });
  return {*(above - 1), above != breakpoints.end() ? *above : std::numeric_limits<double>::infinity()};
}

}  // namespace dat
