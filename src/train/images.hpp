#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/attack.hpp"
#include "dat/loader.hpp"
#include "dat/program.hpp"

namespace dat {

/// Device memory for the images of one micro-batch and what belongs to them. All arrays hold `capacity` samples.
class Images {
 public:
  Images(Backend& backend, const DatasetInfo& info, int capacity);

  /// Samples [first, first + count) of a host batch: augmented images to `clean`, labels, ids. `all`: the pixels of the
  /// whole dataset on the device, in which the batch's ids are places; null: the batch brings its pixels.
  void load(const HostBatch& batch, int first, int count, const std::uint8_t* all);

  Backend& backend;
  Layout layout;
  int capacity, count = 0;
  float *clean, *x_adv, *eta, *dx;
  std::int32_t* labels;
  std::int64_t* ids;
  Crop* crops;

 private:
  std::uint8_t* pixels_;
  std::int64_t bytes_;  // of one image
};

/// All pixels of a dataset on the device, [size][h][w][c].
[[nodiscard]] const std::uint8_t* put_on_device(Backend& backend, const Dataset& dataset);
/// Whether that should be done: `wanted` is on, off, or auto: where the device has twice the memory to spare.
[[nodiscard]] bool fits_on_device(const Backend& backend, const Dataset& dataset, const std::string& wanted);

/// Loss and accuracy of the samples, and dlogits = the gradient of gradient_scale * sum of losses.
/// loss, correct [count] on the device.
void cross_entropy(Backend& backend, float* logits, const std::int32_t* labels, int count, int classes, float* loss,
                   float* correct, float* dlogits, float gradient_scale);

/// The attack's view of the frozen network, in pieces of the program's size.
class FrozenObjective : public Objective {
 public:
  FrozenObjective(Images& images, FrozenProgram& program, int classes);
  /// For the samples that are in `images` now, from a random start.
  void prepare(std::uint64_t seed, Purpose purpose, std::uint32_t time);
  void gradient() override;
  /// The work of one iteration is recorded when it is done for the second time, and replayed from then on.
  void gradient_step(float alpha, float eps) override;
  /// Loss and correctness of `x` (clean or x_adv), [images.count] each on the device, without a gradient.
  void measure(const float* x, float* loss, float* correct);

 protected:
  Images& images_;
  int classes_;
  float *loss_, *correct_;  ///< [images.capacity], of the last pass

 private:
  struct Recorded {
    int n;
    float alpha, eps;
    std::unique_ptr<Backend::Recording> work;
  };
  void run(const PgdUpdate& update);
  void count_passes() { passes += (n + program_.n() - 1) / program_.n() * program_.n(); }

  FrozenProgram& program_;
  std::vector<Recorded> recorded_;
};

}  // namespace dat
