#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"
#include "segment_factors.hpp"

namespace dat {

namespace {

/// LARS as published: algorithm 1, "SGD with LARS", of You, Gitman and Ginsburg, "Large Batch Training of Convolutional
/// Networks", 2017. Per segment, with the trust coefficient eta:
///   local    = eta * ||theta|| / (||g|| + wd * ||theta||), or 1 where the weights or the denominator are zero
///   momentum = mu * momentum + lr * local * (g + wd * theta)
///   theta   -= momentum
/// Segments of one dimension (batch norm, bias) have neither weight decay nor a local rate (local = 1), as in the code
/// of timm and moco-v3; the algorithm itself does not speak of them. `inside`: g is gradient/p, in `local` too;
/// `outside`: g is the raw gradient, and what theta moves by is multiplied by 1/p.
class LarsSgd final : public Optimizer {
 public:
  LarsSgd(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : backend_(backend), parameters_(parameters), options_(options), factors_(backend, parameters, options) {
    std::vector<std::uint8_t> adapted;
    for (const Segment& segment : parameters.segments)
      adapted.push_back(static_cast<std::uint8_t>(segment.shape.size() > 1));
    adapted_ = backend.allocate_array<std::uint8_t>(std::ssize(adapted), "optimizer factors");
    backend.copy_to_device(adapted_, adapted.data(), adapted.size());
    rates_ = backend.allocate_floats(factors_.segments(), "optimizer factors");
    std::tie(partial_, sums_) = factors_.allocate_sums();
    momentum_ = backend.allocate_floats(parameters.size, "optimizer state");
  }

  void step(const ActiveSet& active, double lr) override {
    const Device device = backend_.device();
    const Chunks& chunks = factors_.begin(active);
    sum(device, chunks, kernels::LarsSgdNorms{parameters_.values, parameters_.gradients, factors_.gradient()}, partial_,
        sums_);
    each(device, factors_.segments(),
         kernels::LocalRate{sums_, adapted_, rates_, lr, options_.trust_coefficient, options_.weight_decay});
    each(device, chunks,
         kernels::LarsSgdStep{parameters_.values, momentum_, parameters_.gradients, factors_.gradient(),
                              factors_.step(), rates_, adapted_, static_cast<float>(options_.momentum),
                              static_cast<float>(options_.weight_decay)});
    ++parameters_.version;
  }

  void set_momentum(double momentum) override { options_.momentum = momentum; }
  [[nodiscard]] std::vector<State> state() const override { return {{"momentum", momentum_}}; }

 private:
  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  SegmentFactors factors_;
  std::uint8_t* adapted_ = nullptr;  ///< [segments] 1: weight decay and a local rate
  float *rates_ = nullptr, *momentum_ = nullptr;
  double *partial_ = nullptr, *sums_ = nullptr;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars_sgd(Backend& backend, Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<LarsSgd>(backend, parameters, options);
}

}  // namespace dat
