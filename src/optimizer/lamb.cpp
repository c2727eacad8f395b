#include "layerwise.hpp"
#include "optimizer.hpp"

namespace dat {

namespace {

/// LAMB as DAT's LALR (dat-2022/dat, lamb.py): no bias correction, u = m/(sqrt(v) + epsilon) + wd*theta on every
/// tensor, and Layerwise's step.
class Lamb final : public Optimizer {
 public:
  Lamb(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : parameters_(parameters),
        options_(options),
        layerwise_(backend, parameters, options),
        m_(backend.allocate_floats(parameters.size, "optimizer state")),
        v_(backend.allocate_floats(parameters.size, "optimizer state")) {
    require(options.epsilon > 0, ExitCode::usage, "LAMB's epsilon must be positive, not ", options.epsilon);
  }

  void step(const ActiveSet& active, double lr) override {
    const auto epsilon = static_cast<float>(options_.epsilon);
    const auto weight_decay = static_cast<float>(options_.weight_decay);
    layerwise_.run(active, lr,
                   kernels::LambDirection{parameters_.values, m_, v_, parameters_.gradients, layerwise_.factors(),
                                          static_cast<float>(options_.beta1), static_cast<float>(1 - options_.beta1),
                                          static_cast<float>(options_.beta2), static_cast<float>(1 - options_.beta2),
                                          epsilon, weight_decay},
                   kernels::LambStep{parameters_.values, m_, v_, layerwise_.steps(), epsilon, weight_decay});
  }

  [[nodiscard]] std::vector<State> state() const override { return {{"m", m_}, {"v", v_}}; }

 private:
  Parameters& parameters_;
  OptimizerOptions options_;
  Layerwise layerwise_;
  float* m_;
  float* v_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(Backend& backend, Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<Lamb>(backend, parameters, options);
}

}  // namespace dat
