#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "launch.hpp"

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
        table_(parameters),
        factors_(parameters.segments.size()),
        sums_(parameters.segments.size() * kSums),
        device_factors_(backend.allocate_floats(static_cast<std::int64_t>(factors_.size()), "optimizer factors")),
        partial_(static_cast<double*>(
            backend.allocate(static_cast<std::size_t>(table_.largest()) * kSums * sizeof(double), "optimizer sums"))) {
    require(0 <= options.clamp_low && options.clamp_low <= options.clamp_high, ExitCode::usage,
            "the trust ratio's bounds must satisfy 0 <= ", options.clamp_low, " <= ", options.clamp_high);
  }

  /// [segments], on the device: the gradient's factor during the first pass, the step size during the second.
  [[nodiscard]] const float* factors() const { return device_factors_; }

  /// First pass: `direction` updates the state and sums ||theta||^2 and ||u||^2. Second pass: `step` moves theta.
  template <class Direction, class Step>
  void run(const ActiveSet& active, double lr, const Direction& direction, const Step& step) {
    const bool inside = options_.importance == "inside";
    const auto chunks = table_.select(active);
    const auto scale = [&](std::size_t k) {
      return active.scale[static_cast<std::size_t>(parameters_.segments[k].layer)];
    };
    for (std::size_t k = 0; k < factors_.size(); ++k) factors_[k] = inside ? scale(k) : 1.0F;
    send_factors();
    sum(backend_.device(), chunks, direction, partial_, sums_.data(), static_cast<int>(factors_.size()));
    for (std::size_t k = 0; k < factors_.size(); ++k) {
      const double tau = std::clamp(std::sqrt(sums_[k * kSums]), options_.clamp_low, options_.clamp_high);
      const double norm = std::sqrt(sums_[k * kSums + 1]);
      const double ratio = tau != 0 && norm != 0 ? tau / norm : 1;
      factors_[k] = static_cast<float>(lr * ratio * (inside ? 1.0 : double(scale(k))));
    }
    send_factors();
    each(backend_.device(), chunks, step);
    ++parameters_.version;
  }

 private:
  void send_factors() { backend_.copy_to_device(device_factors_, factors_.data(), factors_.size() * sizeof(float)); }

  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  ChunkTable table_;
  std::vector<float> factors_;
  std::vector<double> sums_;
  float* device_factors_;
  double* partial_;
};

}  // namespace dat
