#pragma once

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "gradients.hpp"
#include "optimizer.hpp"

namespace dat {

/// Factors of the gradient and the step of each segment: 1/p of JointSpar in one of the two places
/// (OptimizerOptions::importance), the factor that clips the norm of the gradient (OptimizerOptions::clip_norm), and
/// the rate of the last layer (OptimizerOptions::head_rate); and the weight decay of each.
class SegmentFactors {
 public:
  SegmentFactors(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : backend_(backend),
        parameters_(parameters),
        inside_(options.importance == "inside"),
        clip_norm_(options.clip_norm),
        table_(backend, parameters),
        scale_(parameters.segments.size()),
        rates_(scale_.size(), 1.0F) {
    device_scale_ = backend.allocate_floats(segments(), "optimizer factors");
    const bool all = options.no_decay == "none";
    std::vector<float> decay;
    for (const Segment& segment : parameters.segments)
      decay.push_back(all || segment.shape.size() > 1 ? static_cast<float>(options.weight_decay) : 0.0F);
    decay_ = on_device(decay);
    std::fill(rates_.begin() + first_of_head(parameters), rates_.end(), static_cast<float>(options.head_rate));
    device_rates_ = on_device(rates_);
    if (clip_norm_ == 0) return;
    clipped_ = backend.allocate_floats(segments(), "optimizer factors");
    std::tie(partial_, sums_) = allocate_sums();
  }

  /// Takes the active layers of a step and the norm of its gradient. Returns the chunks of the active segments.
  const Chunks& begin(const ActiveSet& active) {
    for (std::size_t k = 0; k < scale_.size(); ++k)
      scale_[k] = active.scale[static_cast<std::size_t>(parameters_.segments[k].layer)] * (inside_ ? 1 : rates_[k]);
    backend_.copy_to_device(device_scale_, scale_.data(), scale_.size() * sizeof(float));
    const Chunks& chunks = table_.select(active);
    if (clip_norm_ > 0) {
      sum(backend_.device(), chunks, kernels::SquaredNorm{parameters_.gradients}, partial_, sums_);
      each(backend_.device(), segments(),
           kernels::ClipFactor{sums_, inside_ ? device_scale_ : nullptr, clipped_, segments(), clip_norm_});
    }
    return chunks;
  }

  /// [segments], on the device, after begin(): the factors of gradient (null: 1) and step.
  [[nodiscard]] const float* gradient() const { return clip_norm_ > 0 ? clipped_ : inside_ ? device_scale_ : nullptr; }
  [[nodiscard]] const float* step() const { return inside_ ? device_rates_ : device_scale_; }

  /// [segments], on the device: weight decay.
  [[nodiscard]] const float* decay() const { return decay_; }

  [[nodiscard]] std::int64_t segments() const { return static_cast<std::int64_t>(scale_.size()); }
  /// Memory for the results of a `sum`: of its chunks, and of segments.
  [[nodiscard]] std::pair<double*, double*> allocate_sums() {
    const auto of = [&](std::int64_t count) {
      return backend_.allocate_array<double>(count * kSums, "optimizer sums");
    };
    return {of(table_.largest()), of(segments())};
  }

 private:
  /// The first segment of the last layer: the weight before the last bias.
  [[nodiscard]] static std::ptrdiff_t first_of_head(const Parameters& parameters) {
    const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
    const auto& all = parameters.segments;
    const auto in_head = [&](const Segment& segment) { return layer(segment.name) == layer(all.back().name); };
    return std::find_if_not(all.rbegin(), all.rend(), in_head).base() - all.begin();
  }

  [[nodiscard]] float* on_device(const std::vector<float>& values) {
    float* const to = backend_.allocate_floats(std::ssize(values), "optimizer factors");
    backend_.copy_to_device(to, values.data(), values.size() * sizeof(float));
    return to;
  }

  Backend& backend_;
  Parameters& parameters_;
  bool inside_;
  double clip_norm_;
  ChunkTable table_;
  std::vector<float> scale_;  ///< 1/p of each segment; where it multiplies the step, times its rate
  std::vector<float> rates_;  ///< of each segment, in units of the learning rate
  float *device_scale_ = nullptr, *device_rates_ = nullptr, *clipped_ = nullptr, *decay_ = nullptr;
  double *partial_ = nullptr, *sums_ = nullptr;
};

}  // namespace dat
