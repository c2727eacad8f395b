#pragma once

#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"
#include "segment_factors.hpp"

namespace dat {

/// Base of LARS and LAMB: per segment, theta -= lr * ratio * u with the trust ratio
/// ratio = min(||theta||, clamp_high) / ||u||, or 1 where either of the two is zero (DAT: Zhang et al.,
/// UAI 2022). `inside`: u is made from gradient/p, and the normalisation cancels most of 1/p; `outside`: u is made from
/// the raw gradient and the step is multiplied by 1/p.
class Layerwise {
 public:
  Layerwise(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : backend_(backend), parameters_(parameters), options_(options), factors_(backend, parameters, options) {
    steps_ = backend.allocate_floats(factors_.segments(), "optimizer factors");
    std::tie(partial_, sums_) = factors_.allocate_sums();
  }

  /// [segments], on the device: the gradient's factor during the first pass.
  [[nodiscard]] const float* factors() const { return factors_.gradient(); }
  /// [segments], on the device: their weight decay.
  [[nodiscard]] const float* decay() const { return factors_.decay(); }
  /// [segments], on the device: the step size during the second pass.
  [[nodiscard]] const float* steps() const { return steps_; }

  /// First pass: `direction` updates the state and sums ||theta||^2 and ||u||^2. Second pass: `step` moves theta.
  template <class Direction, class Step>
  void run(const ActiveSet& active, double lr, const Direction& direction, const Step& step) {
    const Device device = backend_.device();
    const Chunks& chunks = factors_.begin(active);
    sum(device, chunks, direction, partial_, sums_);
    each(device, factors_.segments(), kernels::TrustRatio{sums_, factors_.step(), steps_, lr, options_.clamp_high});
    each(device, chunks, step);
    ++parameters_.version;
  }

 private:
  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  SegmentFactors factors_;
  float* steps_ = nullptr;
  double *partial_ = nullptr, *sums_ = nullptr;
};

}  // namespace dat
