#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "dat/selector.hpp"

namespace dat {

/// Error(usage) unless probabilities in [p_min, 1] can meet the budget.
inline void check_constraint(const std::vector<double>& log_w, const std::vector<double>& costs, double budget,
                             double p_min) {
  constexpr double kSlack = 1e-12;  // room for the rounding of sums; far below any difference that matters
  const double all =
      costs.empty() ? static_cast<double>(log_w.size()) : std::accumulate(costs.begin(), costs.end(), 0.0);
  require(p_min > 0 && p_min <= 1, ExitCode::usage, "p_min = ", p_min, " is not in (0, 1]");
  require(all * p_min <= budget * (1 + kSlack) && budget <= all * (costs.empty() ? 1 : 1 + kSlack), ExitCode::usage,
          "no probabilities in [", p_min, ", 1] of ", log_w.size(), " layers meet the budget ", budget,
          ": it must be in [", all * p_min, ", ", all, "]");
  assert(std::ranges::all_of(log_w, [](double x) { return std::isfinite(x); }));
  assert(std::ranges::all_of(costs, [](double c) { return c > 0 && std::isfinite(c); }));
}

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
