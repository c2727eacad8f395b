#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "dat/sampler.hpp"

namespace dat {

/// The number of a step that stands, where epochs have `now` steps, at the place of step number `step` where they have
/// `then`; rounded down.
[[nodiscard]] constexpr std::int64_t at_same_place(std::int64_t step, std::int64_t then, std::int64_t now) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t whole{}, rest{}, place{};
  const bool fits = !__builtin_mul_overflow(step / then, now, &whole) &&
                    !__builtin_mul_overflow(step % then, now, &rest) &&
                    !__builtin_add_overflow(whole, rest / then, &place);
  return fits ? place : kMost;
}

/// Returns whether the active layers are the same in every step but for those of --freeze, and nothing is to happen
/// while a pass is under way: passes may then be recorded as a whole (see Learner).
[[nodiscard]] inline bool passes_are_alike(const TrainOptions& options) {
  return options.selector == "all" && !options.overlap;
}

/// Images of each of so many ranks in a step; ordered: of all of them. Error(usage): --total-batch is no multiple of
/// the number of ranks, or the product does not fit.
[[nodiscard]] int batch_of(const TrainOptions& options, int ranks);

/// The arithmetic of a run: how its images are shared out among ranks, steps and micro-batches, and how long it is. A
/// plan is made once, from the options, the number of training images and the number of ranks that train.
class Plan {
 public:
  Plan(const TrainOptions& options, const Mix& training_images, int ranks);

  int ranks;
  Mix mix;              ///< mixture of the training set
  std::int64_t images;  ///< images of the training set
  /// Sums have the order of the micro-batches of all ranks, which are dealt as in dat/dealing.hpp: --deterministic. An
  /// epoch is shared out as on one rank with all of the batch.
  bool ordered;
  std::int64_t total_batch;  ///< images of all ranks in a step as asked: --total-batch, or --batch times the ranks
  int batch;          ///< most images of a rank in a step: --batch, or the rank's share of the set where that is less
  int micro_batches;  ///< micro-batches of a step: of each rank; ordered: of all ranks together
  int micro_batch, last_micro_batch;  ///< images of each micro-batch; last_micro_batch: in the last step of an epoch
  std::int64_t steps_per_epoch;
  std::int64_t epochs;  ///< epochs, warm-up included
  double warmup_epochs;
  std::int64_t steps;         ///< steps of the run: those of its epochs, or --max-steps where that is less
  std::int64_t end;           ///< the step with which another part of the training begins (parts.hpp), or the run ends
  std::int64_t warmup_steps;  ///< steps that begin before the warm-up is over
  std::int64_t draw_period;   ///< steps between draws of layers (--resample)
  std::int64_t frozen_steps;  ///< the first steps, in which --freeze counts
  ByEpoch<int> sizes;         ///< height = width of the cuts that are trained on; 0: that of the images

  /// Most micro-batches of a rank in a step.
  [[nodiscard]] int most_units() const { return batch / micro_batch; }
  /// Micro-batches of a rank in a step.
  [[nodiscard]] int micro_batches_of(int rank) const { return micro_batches_of(rank, ranks); }
  /// Micro-batches of a rank in a group of `of_ranks` ranks.
  [[nodiscard]] int micro_batches_of(int rank, int of_ranks) const;
  /// Most images of all ranks in a step: the total batch, or the set, filled up, where that is less.
  [[nodiscard]] std::int64_t images_of_a_step() const {
    return std::int64_t{micro_batch} * micro_batches * (ordered ? 1 : ranks);
  }
  /// Images of each micro-batch of a step.
  [[nodiscard]] int micro_batch_in(std::int64_t step) const {
    return (step + 1) % steps_per_epoch == 0 ? last_micro_batch : micro_batch;
  }
  /// Height = width of the images of a step; 0: that of the dataset.
  [[nodiscard]] int size_of(std::int64_t step) const { return sizes.at(epoch_of(step)); }
  /// Returns whether the parameters that --freeze names are frozen in this step.
  [[nodiscard]] bool frozen_in(std::int64_t step) const { return step < frozen_steps; }
  /// Epochs of the run, with their fraction.
  [[nodiscard]] double epochs_made() const { return static_cast<double>(steps) / static_cast<double>(steps_per_epoch); }
  /// Returns whether a step may have an image twice.
  [[nodiscard]] bool repeats_images() const;
  [[nodiscard]] std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch; }
  /// Labelled and extra images of a batch, for people; empty for a pool.
  [[nodiscard]] std::string mix_text() const;
  /// "512 steps, 16 epochs of 32 steps (1 warm-up)".
  [[nodiscard]] std::string text() const;

 private:
  Plan(const TrainOptions& options, const Mix& training_images, int ranks, const EpochPlan& epoch);
  std::int64_t images_of_an_epoch_ = 0;  ///< images of all ranks in an epoch
};

}  // namespace dat
