#pragma once

#include <vector>

#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"

namespace dat {

/// What LARS and LAMB share: per segment, theta -= lr * ratio * u with the trust ratio
/// ratio = clamp(||theta||, clamp_low, clamp_high) / ||u||, or 1 where either of the two is zero (DAT: Zhang et al.,
/// UAI 2022). `inside`: u is made from gradient/p, and the normalisation cancels most of 1/p; `outside`: u is made from
/// the raw gradient and the step is multiplied by 1/p.
class Layerwise {
 public:
  Layerwise(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : backend_(backend),
        parameters_(parameters),
        options_(options),
        table_(backend, parameters),
        scale_(parameters.segments.size(), 1.0F) {
    require(0 <= options.clamp_low && options.clamp_low <= options.clamp_high, ExitCode::usage,
            "the trust ratio's bounds must satisfy 0 <= ", options.clamp_low, " <= ", options.clamp_high);
    const auto segments = static_cast<std::int64_t>(scale_.size());
    const auto doubles = [&](std::int64_t count) {
      return static_cast<double*>(backend.allocate(static_cast<std::size_t>(count) * sizeof(double), "optimizer sums"));
    };
    device_scale_ = backend.allocate_floats(segments, "optimizer factors");
    steps_ = backend.allocate_floats(segments, "optimizer factors");
    partial_ = doubles(table_.largest() * kSums);
    sums_ = doubles(segments * kSums);
    send_scale();
  }

  /// [segments], on the device: the gradient's factor during the first pass.
  [[nodiscard]] const float* factors() const { return options_.importance == "inside" ? device_scale_ : nullptr; }
  /// [segments], on the device: the step size during the second pass.
  [[nodiscard]] const float* steps() const { return steps_; }

  /// First pass: `direction` updates the state and sums ||theta||^2 and ||u||^2. Second pass: `step` moves theta.
  template <class Direction, class Step>
  void run(const ActiveSet& active, double lr, const Direction& direction, const Step& step) {
    for (std::size_t k = 0; k < scale_.size(); ++k)
      scale_[k] = active.scale[static_cast<std::size_t>(parameters_.segments[k].layer)];
    send_scale();
    const Device device = backend_.device();
    const Chunks& chunks = table_.select(active);
    sum(device, chunks, direction, partial_, sums_);
    each(device, static_cast<std::int64_t>(scale_.size()),
         kernels::TrustRatio{sums_, options_.importance == "inside" ? nullptr : device_scale_, steps_, lr,
                             options_.clamp_low, options_.clamp_high});
    each(device, chunks, step);
    ++parameters_.version;
  }

 private:
  void send_scale() { backend_.copy_to_device(device_scale_, scale_.data(), scale_.size() * sizeof(float)); }

  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  ChunkTable table_;
  std::vector<float> scale_;  ///< 1/p of each segment
  float *device_scale_ = nullptr, *steps_ = nullptr;
  double *partial_ = nullptr, *sums_ = nullptr;
};

}  // namespace dat
