#pragma once

#include <cstdint>

#include "dat/attack.hpp"
#include "dat/loader.hpp"
#include "dat/program.hpp"

namespace dat {

/// Device memory for the images of one micro-batch and what belongs to them. All arrays hold `capacity` samples.
class Images {
 public:
  Images(Backend& backend, const DatasetInfo& info, int capacity);

  /// Samples [first, first + count) of a host batch: augmented images to `clean`, labels, ids.
  void load(const HostBatch& batch, int first, int count);

  Backend& backend;
  Layout layout;
  int capacity, count = 0;
  float *clean, *x_adv, *eta, *dx;
  std::int32_t* labels;
  std::int64_t* ids;

 private:
  std::uint8_t* pixels_;
  Crop* crops_;
  std::int64_t bytes_;  // of one image
};

/// Loss and accuracy of the samples, and dlogits = the gradient of gradient_scale * sum of losses.
/// loss, correct [count] on the device.
void cross_entropy(Backend& backend, float* logits, const std::int32_t* labels, int count, int classes, float* loss,
                   float* correct, float* dlogits, float gradient_scale);

/// The attack's view of the frozen network, in pieces of the program's size.
class FrozenObjective final : public Objective {
 public:
  FrozenObjective(Images& images, FrozenProgram& program, int classes);
  /// For the samples that are in `images` now.
  void prepare(std::uint64_t seed, Purpose purpose, std::uint32_t time);
  void gradient() override;
  /// Loss and correctness of `x` (clean or x_adv), [images.count] each on the device, without a gradient.
  void measure(const float* x, float* loss, float* correct);

 private:
  Images& images_;
  FrozenProgram& program_;
  int classes_;
  float *loss_, *correct_;
};

}  // namespace dat
