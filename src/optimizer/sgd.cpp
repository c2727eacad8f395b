#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"
#include "segment_factors.hpp"

namespace dat {

namespace {

/// torch.optim.SGD, with 1/p of JointSpar in one of two places. `inside`: the momentum is that of gradient/p.
/// `outside`: it is that of the raw gradient, and the step is multiplied by 1/p, weight decay included.
class Sgd final : public Optimizer {
 public:
  Sgd(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : backend_(backend),
        parameters_(parameters),
        options_(options),
        factors_(backend, parameters, options),
        momentum_(backend.allocate_floats(parameters.size, "optimizer state")) {}

  void step(const ActiveSet& active, double lr) override {
    const Chunks& chunks = factors_.begin(active);
    each(backend_.device(), chunks,
         kernels::SgdStep{parameters_.values, momentum_, parameters_.gradients, factors_.gradient(), factors_.step(),
                          factors_.decay(), static_cast<float>(options_.momentum), static_cast<float>(lr),
                          options_.nesterov});
    ++parameters_.version;
  }

  void set_momentum(double momentum) override { options_.momentum = momentum; }
  [[nodiscard]] std::vector<State> state() const override { return {{"momentum", momentum_}}; }

 private:
  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  SegmentFactors factors_;
  float* momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(Backend& backend, Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(backend, parameters, options);
}

}  // namespace dat
