#include "dat/selector.hpp"

namespace dat {

namespace {

/// Every layer in every step: training without JointSpar.
class AllSelector final : public LayerSelector {
 public:
  explicit AllSelector(int layers) : p_(static_cast<std::size_t>(layers), 1.0) {}

  void learn(const ActiveSet&, const std::vector<double>&) override {}
  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }
  [[nodiscard]] std::vector<double> state() const override { return {}; }
  void restore(const std::vector<double>& state) override {
    require(state.empty(), ExitCode::checkpoint, "the checkpoint holds ", state.size(),
            " numbers of selector state, but selector 'all' has none: resume with the selector of the first run");
  }

 private:
  std::vector<double> p_;
};

}  // namespace

std::unique_ptr<LayerSelector> make_all_selector(const SelectorOptions& options) {
  return std::make_unique<AllSelector>(options.layers);
}

}  // namespace dat
