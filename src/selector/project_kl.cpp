#include <cmath>

#include "breakpoints.hpp"

namespace dat {

void project_kl(const std::vector<double>& log_w, const std::vector<double>& costs, double budget, double p_min,
                std::vector<double>& q, std::vector<double>& scratch) {
  const bool equal = std::ranges::adjacent_find(costs, std::not_equal_to<>()) == costs.end();
  if (equal) return clip_to_budget(log_w, costs, budget, p_min, q, scratch);

  // q_d = clip(exp(log_w_d + cost_d*mu), p_min, 1) with mu = -lambda, and what they cost grows with mu.
  const double log_p_min = std::log(p_min);
  const std::size_t layers = log_w.size();
  const auto reaches_one = [&](std::size_t d) { return -log_w[d] / costs[d]; };
  const auto leaves_floor = [&](std::size_t d) { return (log_p_min - log_w[d]) / costs[d]; };
  scratch.clear();
  for (std::size_t d = 0; d < layers; ++d) {
    scratch.push_back(reaches_one(d));
    scratch.push_back(leaves_floor(d));
  }
  const Interval interval = bracket(scratch, budget, [&](double mu) {
    double total = 0;
    for (std::size_t d = 0; d < layers; ++d) total += costs[d] * clip_exp(log_w[d] + costs[d] * mu, p_min);
    return total;
  });
  const auto at_one = [&](std::size_t d) { return reaches_one(d) <= interval.below; };
  const auto at_floor = [&](std::size_t d) { return leaves_floor(d) >= interval.above; };

  // The others share what is left. Their logarithms are taken from the lower end of the interval on: sums of small
  // numbers, however large log_w is.
  double left = budget;
  for (std::size_t d = 0; d < layers; ++d) left -= at_one(d) ? costs[d] : at_floor(d) ? costs[d] * p_min : 0;
  const auto weight = [&](std::size_t d, double delta) {
    return std::exp(log_w[d] + costs[d] * interval.below + costs[d] * delta);
  };
  // The root of ln(sum cost*weight(delta)) - ln(left), which grows and is convex: from the upper end Newton's steps
  // only go down. They end where rounding no longer lets them.
  double delta = interval.above - interval.below, sum = 0;
  for (bool closer = left > 0 && std::isfinite(delta); closer;) {
    double slope = 0;
    sum = 0;
    for (std::size_t d = 0; d < layers; ++d) {
      if (at_one(d) || at_floor(d)) continue;
      sum += costs[d] * weight(d, delta);
      slope += costs[d] * costs[d] * weight(d, delta);
    }
    const double next = std::max(0.0, delta - std::log(sum / left) * sum / slope);
    closer = next < delta;
    delta = std::min(delta, next);
  }
  // Remainders of rounding are shared out, so that they meet the budget.
  q.resize(layers);
  for (std::size_t d = 0; d < layers; ++d)
    q[d] = at_one(d)     ? 1
           : at_floor(d) ? p_min
           : sum > 0     ? std::clamp(weight(d, delta) * (left / sum), p_min, 1.0)
                         : p_min;
}

}  // namespace dat
