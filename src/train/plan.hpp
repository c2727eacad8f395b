#pragma once

#include <cstdint>
#include <string>

#include "dat/config.hpp"
#include "dat/sampler.hpp"

namespace dat {

/// The arithmetic of a run: how its images are shared out among ranks, steps and micro-batches, and how long it is.
/// Made once, from the options, the number of training images and that of the ranks that train.
class Plan {
 public:
  Plan(const TrainOptions& options, const Mix& training_images, int ranks);

  int ranks;
  Mix mix;                        ///< of the training set
  std::int64_t images;            ///< of the training set
  std::int64_t images_of_a_rank;  ///< in an epoch, those that come again to fill up its last step included
  int batch;                      ///< images of one rank and step: --batch, or its share of the set where that is less
  int micro_batches;              ///< of a step
  int micro_batch, last_micro_batch;  ///< images of each of them; in the last step of an epoch
  std::int64_t steps_per_epoch;
  int epochs, warmup_epochs;  ///< `epochs` includes the warm-up
  std::int64_t warmup_steps;
  std::int64_t steps;        ///< of the run: its epochs, or --max-steps where that is less
  std::int64_t draw_period;  ///< steps between draws of layers (--resample)

  [[nodiscard]] int epoch_of(std::int64_t step) const { return static_cast<int>(step / steps_per_epoch); }
  /// Labelled and extra images of a batch, for people; empty for a pool.
  [[nodiscard]] std::string mix_text() const;
  /// "512 steps, 16 epochs of 32 steps (1 warm-up)".
  [[nodiscard]] std::string text() const;

 private:
  Plan(const TrainOptions& options, const Mix& training_images, int ranks, const EpochPlan& epoch);
};

}  // namespace dat
