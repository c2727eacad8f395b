#include "budget.hpp"
#include "dat/selector.hpp"

namespace dat {

namespace {

/// Every layer with the same probability, budget/layers: what the others are measured against. Since costs have the
/// mean 1, it meets the budget in any unit.
class UniformSelector final : public LayerSelector {
 public:
  explicit UniformSelector(const SelectorOptions& options) {
    check_budget(options);
    p_.assign(static_cast<std::size_t>(options.layers), equal_probability(options));
  }

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

 private:
  std::vector<double> p_;
};

}  // namespace

std::unique_ptr<LayerSelector> make_uniform_selector(const SelectorOptions& options) {
  return std::make_unique<UniformSelector>(options);
}

}  // namespace dat
