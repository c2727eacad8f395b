#include <cmath>

#include "breakpoints.hpp"

namespace dat {

void clip_to_budget(const std::vector<double>& log_w, const std::vector<double>& costs, double budget, double p_min,
                    std::vector<double>& q, std::vector<double>& scratch) {
  const auto cost = [&](std::size_t d) { return costs.empty() ? 1.0 : costs[d]; };

  // q_d = clip(exp(log_w_d + lambda), p_min, 1), and what they cost grows with lambda. Between two neighbouring
  // breakpoints it is known which entries are clipped.
  const double log_p_min = std::log(p_min);
  scratch.clear();
  for (const double x : log_w) {
    scratch.push_back(-x);
    scratch.push_back(log_p_min - x);
  }
  const Interval interval = bracket(scratch, budget, [&](double lambda) {
    double total = 0;
    for (std::size_t d = 0; d < log_w.size(); ++d) total += cost(d) * clip_exp(log_w[d] + lambda, p_min);
    return total;
  });
  const auto at_one = [&](double x) { return -x <= interval.below; };
  const auto at_floor = [&](double x) { return log_p_min - x >= interval.above; };

  // The others share what is left of the budget, in proportion to their weights.
  double left = budget;
  double largest = -INFINITY;
  for (std::size_t d = 0; d < log_w.size(); ++d) {
    if (at_one(log_w[d]))
      left -= cost(d);
    else if (at_floor(log_w[d]))
      left -= cost(d) * p_min;
    else
      largest = std::max(largest, log_w[d]);
  }
  double sum = 0;
  for (std::size_t d = 0; d < log_w.size(); ++d)
    if (!at_one(log_w[d]) && !at_floor(log_w[d])) sum += cost(d) * std::exp(log_w[d] - largest);
  q.resize(log_w.size());
  for (std::size_t d = 0; d < q.size(); ++d) {
    const double x = log_w[d];
    q[d] = at_one(x) ? 1 : at_floor(x) ? p_min : std::clamp(left * (std::exp(x - largest) / sum), p_min, 1.0);
  }
}

}  // namespace dat
