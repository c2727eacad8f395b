#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/loader.hpp"
#include "dat/logits.hpp"

namespace dat {

/// Device memory for the images of one micro-batch and what belongs to them. All arrays hold `capacity` samples, which
/// is a multiple of what the programs that compute them take at a time. Images that are cut smaller lie in the same
/// arrays, from their beginning.
class Images {
 public:
  /// scratch: arrays the size of the images that attacks may use (Attack::scratch_images). kept: what the training's
  /// attack leaves of where it begins.
  Images(Backend& backend, const DatasetInfo& info, int capacity, int scratch = 0, StartKept kept = StartKept::nothing);

  /// Samples [first, first + count) of a host batch: augmented images to `clean`, of the batch's size, labels, ids.
  /// `all`: the pixels of the whole dataset on the device, in which the batch's ids are places; null: the batch brings
  /// its pixels.
  void load(const HostBatch& batch, int first, int count, const std::uint8_t* all);

  /// Images have this height = width from now on, which load() says, too; 0: that of the dataset.
  void cut(int size);
  /// That of the dataset's images, which no image exceeds.
  [[nodiscard]] int largest() const { return largest_; }

  Backend& backend;
  Layout layout;  ///< of an image at hand
  int classes, capacity, count = 0;
  float *clean, *x_adv, *eta, *dx, *scratch = nullptr;
  /// Where the training's attack took its first gradient, and the logits there (AttackGoal::kept); null: not wanted.
  float *first_images = nullptr, *first_logits = nullptr;
  std::int32_t *labels, *targets, *done;  ///< targets, done: memory for attacks (Objective)
  std::int64_t* ids;
  Crop* crops;

 private:
  std::uint8_t* pixels_;
  int largest_;
  std::int64_t bytes_;  // of one image as the dataset has it
};

/// All pixels of a dataset on the device, [size][h][w][c].
[[nodiscard]] const std::uint8_t* put_on_device(Backend& backend, const Dataset& dataset);
/// Whether the pixels of a dataset should be put on the device: `wanted` is on, off, or auto, which means where the
/// device has twice the memory to spare.
[[nodiscard]] bool fits_on_device(const Backend& backend, const Dataset& dataset, const std::string& wanted);

}  // namespace dat
