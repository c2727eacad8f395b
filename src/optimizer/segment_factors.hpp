#pragma once

#include <algorithm>
#include <string>
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
        scale_(parameters.segments.size()) {
    const auto segments = static_cast<std::int64_t>(scale_.size());
    device_scale_ = backend.allocate_floats(segments, "optimizer factors");
    decay_ = backend.allocate_floats(segments, "optimizer factors");
    const bool all = options.no_decay == "none";
    std::vector<float> decay;
    for (const Segment& segment : parameters.segments)
      decay.push_back(all || segment.shape.size() > 1 ? static_cast<float>(options.weight_decay) : 0.0F);
    backend.copy_to_device(decay_, decay.data(), decay.size() * sizeof(float));
    head_ = first_of_head(parameters);
    head_rate_ = static_cast<float>(options.head_rate);
    if (inside_ && options.head_rate != 1) {
      std::vector<float> rates(scale_.size(), 1.0F);
      std::fill(rates.begin() + head_, rates.end(), head_rate_);
      rates_ = backend.allocate_floats(segments, "optimizer factors");
      backend.copy_to_device(rates_, rates.data(), rates.size() * sizeof(float));
    }
    if (clip_norm_ == 0) return;
    clipped_ = backend.allocate_floats(segments, "optimizer factors");
    partial_ = allocate_sums(table_.largest());
    sums_ = allocate_sums(segments);
  }

  /// Takes the active layers of a step and the norm of its gradient. Returns the chunks of the active segments.
  const Chunks& begin(const ActiveSet& active) {
    for (std::size_t k = 0; k < scale_.size(); ++k)
      scale_[k] = active.scale[static_cast<std::size_t>(parameters_.segments[k].layer)];
    if (!inside_)
      for (auto k = static_cast<std::size_t>(head_); k < scale_.size(); ++k) scale_[k] *= head_rate_;
    backend_.copy_to_device(device_scale_, scale_.data(), scale_.size() * sizeof(float));
    const Chunks& chunks = table_.select(active);
    if (clip_norm_ > 0) {
      sum(backend_.device(), chunks, kernels::SquaredNorm{parameters_.gradients}, partial_, sums_);
      each(backend_.device(), segments(),
           kernels::ClipFactor{sums_, inside_ ? device_scale_ : nullptr, clipped_, segments(), clip_norm_});
    }
    return chunks;
  }

  /// [segments], on the device, after begin(): the factors of gradient and step; null: 1.
  [[nodiscard]] const float* gradient() const { return clip_norm_ > 0 ? clipped_ : inside_ ? device_scale_ : nullptr; }
  [[nodiscard]] const float* step() const { return inside_ ? rates_ : device_scale_; }

  /// [segments], on the device: weight decay.
  [[nodiscard]] const float* decay() const { return decay_; }

  [[nodiscard]] std::int64_t segments() const { return static_cast<std::int64_t>(scale_.size()); }
  [[nodiscard]] std::int64_t chunks() const { return table_.largest(); }
  /// Memory for `count` results of a `sum`.
  [[nodiscard]] double* allocate_sums(std::int64_t count) {
    return backend_.allocate_array<double>(count * kSums, "optimizer sums");
  }

 private:
  /// The first segment of the last layer: the weight before the last bias.
  [[nodiscard]] static std::ptrdiff_t first_of_head(const Parameters& parameters) {
    const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
    const auto& all = parameters.segments;
    const auto in_head = [&](const Segment& segment) { return layer(segment.name) == layer(all.back().name); };
    return std::find_if_not(all.rbegin(), all.rend(), in_head).base() - all.begin();
  }

  Backend& backend_;
  Parameters& parameters_;
  bool inside_;
  double clip_norm_;
  ChunkTable table_;
  std::vector<float> scale_;  ///< 1/p of each segment; where it multiplies the step, times its rate
  std::ptrdiff_t head_ = 0;   ///< first segment of the last layer
  float head_rate_ = 1;
  float* rates_ = nullptr;  ///< rates of all segments, where 1/p multiplies the gradient; null: 1
  float *device_scale_ = nullptr, *clipped_ = nullptr, *decay_ = nullptr;
  double *partial_ = nullptr, *sums_ = nullptr;
};

}  // namespace dat
