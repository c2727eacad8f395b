#include "budget.hpp"

namespace dat {

/// Every layer in every step: training without JointSpar.
std::unique_ptr<LayerSelector> make_all_selector(const SelectorOptions& options) {
  return std::make_unique<FixedSelector>(options.layers, 1.0);
}

}  // namespace dat
