#include "dat/selector.hpp"

namespace dat {

namespace {

/// Every layer in every step: training without JointSpar.
class AllSelector final : public LayerSelector {
 public:
  explicit AllSelector(int layers) : p_(static_cast<std::size_t>(layers), 1.0) {}

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

 private:
  std::vector<double> p_;
};

}  // namespace

std::unique_ptr<LayerSelector> make_all_selector(const SelectorOptions& options) {
  return std::make_unique<AllSelector>(options.layers);
}

}  // namespace dat
