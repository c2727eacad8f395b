#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dat/backend.hpp"
#include "dat/batch.hpp"
#include "dat/loader.hpp"
#include "dat/needs.hpp"
#include "dat/objective.hpp"

namespace dat {

/// Gaussian noise in front of the network, and the memory for what it is shown: N copies of each image, side by side.
/// The numbers of a copy depend on the sample, on `time` and the seed, and on nothing else.
class NoisyCopies {
 public:
  /// capacity: most images at a time; elements: of the largest image.
  NoisyCopies(Backend& backend, double sigma, int copies, std::int64_t capacity, std::int64_t elements);

  /// Numbers that do not change from epoch to epoch: those of evaluations.
  static constexpr std::uint32_t kEvaluation = 0xFFFFFFFF;

  /// The copies of the images [n] at x, valid until the next call: [n * copies] images. Queued.
  const float* of(const float* x, const std::int64_t* sample_ids, const Layout& layout, int n, std::uint64_t seed,
                  std::uint32_t time);
  [[nodiscard]] int copies() const { return copies_; }

 private:
  Backend& backend_;
  float sigma_;
  int copies_;
  float* images_;
};

/// Device memory for one micro-batch and what is wanted beside it. All arrays hold `capacity` samples, which is a
/// multiple of what the programs that compute them take at a time. Images that are cut smaller lie in the same arrays,
/// from their beginning.
class Buffers {
 public:
  /// needs: of all that works on the micro-batch.
  Buffers(Backend& backend, const DatasetInfo& info, int capacity, const Needs& needs = {});

  /// Puts micro-batch number `index` of a host batch here: augmented images to `clean`, of the batch's size, labels,
  /// ids. `all`: the pixels of the whole dataset on the device, in which the batch's ids are places; null: the batch
  /// brings its pixels. Returns batch().
  Batch& load(const HostBatch& read, int index, const std::uint8_t* all);
  /// The micro-batch that was loaded last.
  [[nodiscard]] Batch& batch() { return batch_; }
  [[nodiscard]] const Batch& batch() const { return batch_; }
  /// Shows it, with memory for what attacks leave, to whoever attacks it.
  void attach(Objective& objective) const;

  /// Images have this height = width from now on, which load() says, too; 0: that of the dataset.
  void cut(int size);

  /// The network is shown images under noise from now on: `copies` of each, of at most `images` at a time. While the
  /// replica is built.
  void add_noise(double sigma, int copies, std::int64_t images);
  [[nodiscard]] bool noisy() const { return noise_ != nullptr; }
  /// Copies of each image that the network is shown under noise; else 1.
  [[nodiscard]] int copies() const { return noise_ ? noise_->copies() : 1; }
  /// Input of the network for the images `of` at x: x under noise with the key (seed, time); where there is no noise, x
  /// itself. [n * copies()] images, valid until the next call. Queued.
  [[nodiscard]] const float* shown(const float* x, const Samples& of, std::uint64_t seed, std::uint32_t time);
  /// Input of the network for images of a micro-batch, under the noise of its epoch.
  [[nodiscard]] const float* shown(const float* x, const Batch& of) { return shown(x, of, of.key.seed, of.key.epoch); }

  Backend& backend;
  Layout layout;  ///< layout of one image
  int classes, capacity;
  float *clean, *x_adv, *eta, *dx, *scratch;
  float *first_images = nullptr, *first_logits = nullptr;  ///< see Batch
  std::int32_t *labels, *targets, *done;                   ///< targets, done: memory for attacks (Objective)
  std::int64_t* ids;
  Crop* crops;

 private:
  std::uint8_t* pixels_;
  int largest_;  ///< height = width of the dataset's images, which no image exceeds
  std::unique_ptr<NoisyCopies> noise_;
  Batch empty_, batch_;  ///< empty_: no images, with the arrays of this object; batch_: the present one, which others
                         ///< may have changed
};

/// All pixels of a dataset on the device, [size][h][w][c].
[[nodiscard]] const std::uint8_t* put_on_device(Backend& backend, const Dataset& dataset);
/// Returns whether the pixels of a dataset should be put on the device: `wanted` is on, off, or auto, which means where
/// the device has twice the memory to spare.
[[nodiscard]] bool fits_on_device(const Backend& backend, const Dataset& dataset, const std::string& wanted);

}  // namespace dat
