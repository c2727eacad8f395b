#include "budget.hpp"

namespace dat {

/// Every layer with the same probability, budget/layers: what the others are measured against. Since costs have the
/// mean 1, it meets the budget in any unit.
std::unique_ptr<LayerSelector> make_uniform_selector(const SelectorOptions& options) {
  check_budget(options);
  return std::make_unique<FixedSelector>(options.layers, equal_probability(options));
}

}  // namespace dat
