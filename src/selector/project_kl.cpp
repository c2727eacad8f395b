#include <algorithm>
#include <cassert>
#include <cmath>

#include "dat/selector.hpp"

namespace dat {

namespace {

// Room for the rounding of D*p_min; far below any difference that matters.
constexpr double kSlack = 1e-12;

double clip_exp(double x, double p_min) { return std::max(std::exp(std::min(x, 0.0)), p_min); }

}  // namespace

void project_kl(const std::vector<double>& log_w, double budget, double p_min, std::vector<double>& q,
                std::vector<double>& scratch) {
  const auto layers = static_cast<double>(log_w.size());
  require(p_min > 0 && p_min <= 1, ExitCode::usage, "p_min = ", p_min, " is not in (0, 1]");
  require(layers * p_min <= budget * (1 + kSlack) && budget <= layers, ExitCode::usage, "no probabilities in [", p_min,
          ", 1] of ", log_w.size(), " layers sum to the budget ", budget, ": it must be in [", layers * p_min, ", ",
          layers, "]");
  assert(std::all_of(log_w.begin(), log_w.end(), [](double x) { return std::isfinite(x); }));

  // q_d = clip(exp(log_w_d + lambda), p_min, 1), and its sum grows with lambda. Between two neighbouring breakpoints it
  // is known which entries are clipped.
  const double log_p_min = std::log(p_min);
  scratch.clear();
  for (const double x : log_w) {
    scratch.push_back(-x);
    scratch.push_back(log_p_min - x);
  }
  std::sort(scratch.begin(), scratch.end());
  const auto above = std::partition_point(scratch.begin() + 1, scratch.end(), [&](double lambda) {
    double total = 0;
    for (const double x : log_w) total += clip_exp(x + lambda, p_min);
    return total <= budget;
  });
  const double below = *(above - 1);
  const auto at_one = [&](double x) { return -x <= below; };
  const auto at_floor = [&](double x) { return above != scratch.end() && log_p_min - x >= *above; };

  // The others share what is left of the budget, in proportion to their weights.
  double left = budget;
  double largest = -INFINITY;
  for (const double x : log_w) {
    if (at_one(x))
      left -= 1;
    else if (at_floor(x))
      left -= p_min;
    else
      largest = std::max(largest, x);
  }
  double sum = 0;
  for (const double x : log_w)
    if (!at_one(x) && !at_floor(x)) sum += std::exp(x - largest);
  q.resize(log_w.size());
  for (std::size_t d = 0; d < q.size(); ++d) {
    const double x = log_w[d];
    q[d] = at_one(x) ? 1 : at_floor(x) ? p_min : std::clamp(left * (std::exp(x - largest) / sum), p_min, 1.0);
  }
}

}  // namespace dat
