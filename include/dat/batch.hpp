#pragma once

#include <cstdint>

#include "dat/logits.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// Identity of a micro-batch of a training: with the samples' numbers, the key of all that is random in it.
struct BatchKey {
  std::uint64_t seed = 0;   ///< seed of the training
  std::uint32_t epoch = 0;  //
  std::int64_t step = 0;    ///< number of the step in the training
  int unit = 0;             ///< number of the unit of work of its rank that it belongs to (Reducer)
  int size = 0;             ///< height = width of its images; 0: those of the dataset
};

/// Place of a micro-batch in means over a step: its unit of work, whether the unit begins with it, and the share of its
/// images in the images of the mean.
struct BatchPlace {
  int unit = 0;
  bool first = true;
  float share = 1;
};

/// A micro-batch on the device: its samples, their images, clean, attacked and where the attack began, and its place in
/// the step. Images are [n] in `layout`, float in [0, 1]. The arrays belong to whoever has made it.
struct Batch : Samples {
  Layout layout;
  BatchKey key;
  int begins_at = 0;   ///< number of its first image in this rank's part of the step
  int in_step = 0;     ///< images of this rank's part of the step
  int elsewhere = 0;   ///< images of other ranks that the mean of the loss is over as well; else each rank has its own
  bool whole = false;  ///< true: a whole unit of work; false: the rank's part of the step
  float *clean = nullptr, *x_adv = nullptr;  ///< images as they are; attacked
  float* eta = nullptr;                      ///< the perturbation, while the attack runs
  /// Images at which the attack has taken its first gradient, and the logits [n, classes] there (Needs); null: not
  /// wanted.
  float *first_images = nullptr, *first_logits = nullptr;
  const Crop* crops = nullptr;  ///< [n] how the images were cut out

  [[nodiscard]] int averaged() const { return in_step + elsewhere; }
  /// Part of these images in the number that the mean of the loss is over.
  [[nodiscard]] float share() const { return static_cast<float>(n) / static_cast<float>(averaged()); }
  [[nodiscard]] bool begins_unit() const { return whole || begins_at == 0; }
  [[nodiscard]] bool ends_step() const { return begins_at + n == in_step; }
  [[nodiscard]] BatchPlace place() const { return {.unit = key.unit, .first = begins_unit(), .share = share()}; }
  /// The same images as a unit of work by itself, the first one.
  [[nodiscard]] Batch alone() const {
    Batch one = *this;
    one.key.unit = 0;
    one.begins_at = 0;
    return one;
  }
};

}  // namespace dat
