#include "layerwise.hpp"
#include "optimizer.hpp"

namespace dat {

namespace {

/// LARS in DAT's form: momentum <- mu*momentum + (g + wd*theta) on every tensor, u = momentum, and Layerwise's step.
/// (As You et al. wrote it: lars_sgd.cpp.)
class Lars final : public Optimizer {
 public:
  Lars(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : parameters_(parameters),
        options_(options),
        layerwise_(backend, parameters, options),
        momentum_(backend.allocate_floats(parameters.size, "optimizer state")) {}

  void step(const ActiveSet& active, double lr) override {
    layerwise_.run(active, lr,
                   kernels::LarsDirection{parameters_.values, momentum_, parameters_.gradients, layerwise_.factors(),
                                          layerwise_.decay(), static_cast<float>(options_.momentum)},
                   kernels::LarsStep{parameters_.values, momentum_, layerwise_.steps()});
  }

  void set_momentum(double momentum) override { options_.momentum = momentum; }
  [[nodiscard]] std::vector<State> state() const override { return {{"momentum", momentum_}}; }

 private:
  Parameters& parameters_;
  OptimizerOptions options_;
  Layerwise layerwise_;
  float* momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(Backend& backend, Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<Lars>(backend, parameters, options);
}

}  // namespace dat
