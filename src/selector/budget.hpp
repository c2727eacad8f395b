#pragma once

#include <algorithm>
#include <cassert>

#include "dat/selector.hpp"

namespace dat {

/// Error(usage) where no probabilities in [p_min, 1] meet the budget. Costs have the mean 1 and change nothing in that.
inline void check_budget(const SelectorOptions& options) {
  assert(options.costs.empty() || std::ssize(options.costs) == options.layers);
  require(options.budget <= options.layers, ExitCode::usage, "budget ", options.budget, " is more than the ",
          options.layers, " layers, those of --freeze left out: lower it to at most ", options.layers);
  // The slack is for the rounding of the product.
  const double lowest = options.layers * options.p_min;
  require(options.budget >= lowest * (1 - 1e-12), ExitCode::usage, "budget ", options.budget, " is less than p_min ",
          options.p_min, " times ", options.layers, " layers: raise the budget to at least ", lowest,
          " or lower p_min to at most ", options.budget / options.layers);
}

/// The probability of every layer while nothing is known of them. This probability meets the budget whatever the costs.
[[nodiscard]] inline double equal_probability(const SelectorOptions& options) {
  return std::max(options.budget / options.layers, options.p_min);
}

/// Every layer with the same probability in every step.
class FixedSelector final : public LayerSelector {
 public:
  FixedSelector(int layers, double p) : p_(static_cast<std::size_t>(layers), p) {}
  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

 private:
  std::vector<double> p_;
};

}  // namespace dat
