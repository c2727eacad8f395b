#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"

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
        table_(backend, parameters),
        scale_(parameters.segments.size()),
        device_scale_(backend.allocate_floats(static_cast<std::int64_t>(scale_.size()), "optimizer factors")),
        momentum_(backend.allocate_floats(parameters.size, "optimizer state")) {}

  void step(const ActiveSet& active, double lr) override {
    for (std::size_t k = 0; k < scale_.size(); ++k)
      scale_[k] = active.scale[static_cast<std::size_t>(parameters_.segments[k].layer)];
    backend_.copy_to_device(device_scale_, scale_.data(), scale_.size() * sizeof(float));
    const bool inside = options_.importance == "inside";
    each(backend_.device(), table_.select(active),
         kernels::SgdStep{parameters_.values, momentum_, parameters_.gradients, inside ? device_scale_ : nullptr,
                          inside ? nullptr : device_scale_, static_cast<float>(options_.momentum),
                          static_cast<float>(options_.weight_decay), static_cast<float>(lr), options_.nesterov});
    ++parameters_.version;
  }

  [[nodiscard]] std::vector<State> state() const override { return {{"momentum", momentum_}}; }

 private:
  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  ChunkTable table_;
  std::vector<float> scale_;
  float* device_scale_;
  float* momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(Backend& backend, Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(backend, parameters, options);
}

}  // namespace dat
