#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reduce/sums/summation_tree.hpp"
#include "train/plan/step_method.hpp"
#include "train/watch/finite.hpp"
#include "train/watch/loss_scale.hpp"
#include "train/watch/replica_check.hpp"
#include "train/watch/stragglers.hpp"
#include "train/watch/verification.hpp"

namespace dat {

/// Checks of the steps of a training: for numbers that are not finite, gradients that are not what another rank
/// computes, replicas that differ, ranks that are slow. And their effects on the run.
class StepChecks {
 public:
  /// Objects that it checks; all of them outlive it.
  struct Parts {
    Communicator& ranks;
    const Dataset& images;  ///< the training set
    const TrainOptions& options;
    const Plan& plan;
    const StepMethod& method;
    Replica& replica;
    const Learner& learner;
    const BatchStatistics& statistics;
    const SummationTree* order;  ///< order of sums over micro-batches; null: each rank has its own
    PhaseTimer& timer;
  };
  explicit StepChecks(const Parts& parts);

  /// Sets the parts that must be equal on all ranks; before check_replicas().
  void compare(std::vector<Stateful*> replicated);
  /// Sets the pixels of the training set, on the device; null: they are not there.
  void keep_on_device(const std::uint8_t* pixels) {
    if (recompute_) recompute_->keep_on_device(pixels);
  }

  /// Begins a step; `stop`: this rank wishes to end the run after it.
  void begin_step(bool stop);
  /// Begins the examples of step number `step`.
  void begin_examples(std::int64_t step);
  /// Look at the step's next examples, before they are trained on; at their gradient at `place` afterwards, to which
  /// nothing else has been added where they are the first of their unit.
  void look_at(const Batch& batch) { numbers_.look_at_images(batch); }
  void keep(const Batch& batch, const float* place, const ActiveSet& active) {
    if (verification_) verification_->keep(batch, place, active);
  }
  /// Look at the gradients that this rank brings to the reduction, and those that the reduction has left.
  void look_at_own(std::span<float* const> gradients, const ActiveSet& layers) {
    numbers_.look_at_own(gradients, layers);
  }
  void look_at_sum(const ActiveSet& layers) { numbers_.look_at_sum(layers); }
  /// Returns whether the gradient of step number `step` may be used, once the message has been summed. On all ranks
  /// alike: Error(numerical) where no more steps may be skipped; Error(integrity) where a micro-batch that is
  /// recomputed is another one, unless it is repaired. **Collective.**
  [[nodiscard]] bool may_update(std::int64_t step, const ActiveSet& active);
  void end_step() { stragglers_.end(); }

  /// Checks that the replicas are equal, after `steps_done` steps. Error(integrity) where they differ, unless that is
  /// repaired. **Collective.**
  void check_replicas(std::int64_t steps_done);
  /// The ranks that have become slow, or keep up again; on all ranks alike. **Collective** (Stragglers).
  [[nodiscard]] std::span<const StragglerRule::Change> compare_speed() { return stragglers_.compare(); }
  /// Repairs since the last call.
  [[nodiscard]] std::vector<CorruptionRecord> take_corruptions() { return std::exchange(corruptions_, {}); }

  /// Reason why the step before was skipped; empty: it was not.
  [[nodiscard]] const std::string& skipped() const { return skipped_; }
  /// Training in f16: what the loss scale became by that; 0: it is not to blame.
  [[nodiscard]] double overflowed_to() const { return overflowed_to_; }
  [[nodiscard]] const double* squares() const { return numbers_.squares(); }  ///< NumberCheck::squares
  /// Bytes this rank has sent for verification in this step.
  [[nodiscard]] std::int64_t bytes_sent() const { return verification_ ? verification_->bytes_sent() : 0; }

  [[nodiscard]] SkippedSteps& skipped_steps() { return skipped_steps_; }
  [[nodiscard]] const SkippedSteps& skipped_steps() const { return skipped_steps_; }
  /// Null: not in f16.
  [[nodiscard]] LossScale* loss_scale() { return loss_scale_.get(); }
  /// Returns whether the loss scale has changed since the last call.
  [[nodiscard]] bool scale_has_changed() { return loss_scale_ != nullptr && loss_scale_->has_changed(); }
  /// Parts of the step's message. The vote comes after whoever may have seen a number that is not finite.
  [[nodiscard]] NumberCheck& numbers() { return numbers_; }
  [[nodiscard]] Vote& vote() { return vote_; }
  [[nodiscard]] const Vote& vote() const { return vote_; }

 private:
  /// Skips a step whose numbers are not finite. Error(numerical) where no more may be skipped.
  void skip(const BadNumbers& bad, std::int64_t step);
  /// Returns whether the step's gradient is what another rank computes. Error(integrity).
  [[nodiscard]] bool verified(const ActiveSet& active);

  Communicator& ranks_;
  const TrainOptions& options_;
  Plan plan_;
  Replica& replica_;
  const Learner& learner_;
  PhaseTimer& timer_;
  Vote vote_;
  NumberCheck numbers_;
  SkippedSteps skipped_steps_;
  std::unique_ptr<LossScale> loss_scale_;
  double overflowed_to_ = 0;
  Stragglers stragglers_;
  std::unique_ptr<Recompute> recompute_;  ///< null: without --verify
  std::unique_ptr<Verification> verification_;
  std::unique_ptr<ReplicaCheck> check_;
  std::vector<CorruptionRecord> corruptions_;
  std::string skipped_;
};

}  // namespace dat
