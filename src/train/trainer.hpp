#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assess/assessment.hpp"
#include "reduce/sums/summation_tree.hpp"
#include "replica/model_state.hpp"
#include "train/attackers/cheating.hpp"
#include "train/examples/example_source.hpp"
#include "train/exchange/step_exchange.hpp"
#include "train/layers/sampling.hpp"
#include "train/learner/learner.hpp"
#include "train/learner/weight_perturbation.hpp"
#include "train/plan/splits.hpp"
#include "train/plan/step_method.hpp"
#include "train/update/statistics_pass.hpp"
#include "train/update/weight_update.hpp"
#include "train/watch/step_checks.hpp"

namespace dat {

/// The steps done at a checkpoint, as a plan of now counts them: with another number of ranks an epoch has another
/// number of steps, and the same place of the epoch is meant. images: of the training set. Error(usage): it was trained
/// on another number of them. Error(checkpoint).
[[nodiscard]] std::int64_t steps_done_at(const Checkpoint& checkpoint, const Plan& plan, std::int64_t images);

/// The training of one network on all ranks: puts the parts of a step together and takes the steps. Construction plans
/// everything and calls no collective; after start() nothing is allocated in step() but recordings
/// of device work (dat/recordings.hpp), by the first steps and where a key of theirs changes.
class Trainer {
 public:
  /// Error(usage): options that do not fit each other or the data; Error(data), Error(device).
  Trainer(Communicator& ranks, const TrainOptions& options);
  /// Trains on other images than those that the options name.
  Trainer(Communicator& ranks, const TrainOptions& options, Splits splits);

  /// Starts the clock and the source of examples, at the step restored or at 0.
  void start();
  /// One step: attack, gradients of the active layers, reduction, update. **Collective.** `stop` is this rank's wish to
  /// end; stop_agreed() says afterwards whether any rank had it. Where a number is not finite nothing is updated: the
  /// step is skipped, up to max_bad_steps in a row. On all ranks alike: Error(numerical) where no more may be skipped,
  /// and the step has not been done; Error(integrity) where a rank repeats the draw of layers and finds another, or a
  /// micro-batch that is recomputed is another one. With --on-corruption repair, a step whose gradient is wrong updates
  /// nothing.
  ///
  /// A GPU that works for itself alone has the work on the next step's examples queued before this step's numbers are
  /// read: it does not wait for the host. The update of this step is then queued unseen, and the GPU leaves it out
  /// where a number is not finite. After an error the trainer takes no further step.
  const StepRecord& step(bool stop);
  [[nodiscard]] bool stop_agreed() const { return checks_.vote().stop_agreed(); }
  /// Ranks that the last step has found out, which has not been done: the training goes on without them, and does it
  /// again. On all ranks alike; empty without --byzantine.
  [[nodiscard]] std::span<const Ban> bans() const { return exchange_->bans(); }
  /// Accusations of ranks since the last call.
  [[nodiscard]] std::vector<Accusation> take_accusations() { return exchange_->take_accusations(); }
  /// Reason why the step before was skipped; empty: it was not.
  [[nodiscard]] const std::string& skipped() const { return checks_.skipped(); }
  [[nodiscard]] double overflowed_to() const { return checks_.overflowed_to(); }  ///< StepChecks::overflowed_to
  [[nodiscard]] const SkippedSteps& skipped_steps() const { return checks_.skipped_steps(); }
  [[nodiscard]] std::int64_t steps_done() const { return step_; }

  /// Accuracy on the test set, then on what is held out, clean and under each attack of --eval, with rank 0's running
  /// statistics; then all of it with the averaged weights, where there are any. progress: called, where it is given, at
  /// the beginning and as parts of the rank's images are done. **Collective.**
  [[nodiscard]] std::vector<EvaluationRecord> evaluate(const std::function<void(double)>& progress = {});

  /// Makes what an evaluation of the averaged weights needs, where it is not there yet: with bn=rebuild, a
  /// pass over the training images. **Collective.**
  void complete_average();
  /// The state as a checkpoint, on rank 0; complete_average() comes before, where the averaged weights shall be used
  /// from it. **Collective.**
  [[nodiscard]] Checkpoint capture();
  /// Takes up a checkpoint, on rank 0, in a trainer just made; share_state then gives it to all. other_options:
  /// discards the partially computed next step of the checkpoint. Error(checkpoint): it does not fit.
  void restore(const Checkpoint& checkpoint, bool other_options = false);
  /// Rank 0's state to all ranks. **Collective.**
  void share_state();
  /// A rollback, in a trainer that has been restored from an earlier checkpoint of the run: counts it, and goes on with
  /// lr_factor times the rates that were in force. before: what had happened until then.
  void set_back(const SkippedSteps& before, double lr_factor);
  /// Gives its images to the next trainer. This one can only be destroyed afterwards.
  [[nodiscard]] Splits release_splits() { return std::move(splits_); }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const;
  /// Error(integrity) where what the ranks hold in common differs, unless it is repaired (ReplicaCheck).
  /// **Collective.**
  void check_replicas() { checks_.check_replicas(step_); }
  /// Repairs since the last call; the texts are rank 0's.
  [[nodiscard]] std::vector<CorruptionRecord> take_corruptions() { return checks_.take_corruptions(); }
  /// Shows all that check_replicas() compares.
  void replicated(ReplicatedState& state) {
    for (Stateful* part : parts()) part->replicated(state);
  }
  [[nodiscard]] std::string weights_hash() const { return dat::weights_hash(model()); }

  /// The ranks that have become slow, or keep up again, with the last steps; on all ranks alike. To be called after
  /// each step. **Collective** (Stragglers).
  [[nodiscard]] std::span<const StragglerRule::Change> compare_speed() { return checks_.compare_speed(); }

  /// Seconds and bytes of every rank since the last call, on rank 0. **Collective.**
  [[nodiscard]] RankRecord gather_times();
  [[nodiscard]] PhaseTimer& timer() { return timer_; }

  /// The parts of the trainer.
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Splits& splits() const { return splits_; }
  [[nodiscard]] Replica& replica() { return replica_; }
  [[nodiscard]] const Model& model() const { return replica_.model(); }
  [[nodiscard]] const StepMethod& method() const { return method_; }
  [[nodiscard]] ExampleSource& examples() { return *examples_; }
  [[nodiscard]] const LayerSampling& layers() const { return *layers_; }
  [[nodiscard]] const Reducer& reducer() const { return exchange_->reducer(); }
  /// Number of a rank's numbers of batch statistics and losses in a step.
  [[nodiscard]] std::size_t contribution_numbers() const { return learner_.places() + statistics_.places(); }
  [[nodiscard]] const Cheating& cheating() const { return cheating_; }
  /// The options with every number that planning has decided.
  [[nodiscard]] TrainOptions resolved() const;

 private:
  [[nodiscard]] std::vector<Stateful*> parts();
  /// Puts images on the device, into the rest of its memory.
  void put_images_on_device();
  /// Returns whether steps may be queued ahead.
  [[nodiscard]] bool can_queue_ahead() const;
  /// Queues the work of a step up to its own gradient.
  void work_on(std::int64_t step, const ActiveSet& active);
  /// Queues the update, which the device makes where it finds all numbers finite, and the work of the next step; then
  /// reads the numbers.
  void update_unseen(const ActiveSet& active);
  void train_on_examples(const ActiveSet& active);
  void leave_out();
  const StepRecord& record(std::int64_t weight_gradients, std::int64_t drawn_bytes);

  Communicator& ranks_;
  TrainOptions options_;
  Splits splits_;
  Plan plan_;
  std::optional<const SummationTree> order_;  ///< order of sums over micro-batches; none: each rank has its own
  StepMethod method_;
  Replica replica_;
  PhaseTimer timer_;
  Cheating cheating_;
  BatchStatistics statistics_;
  std::unique_ptr<ExampleSource> examples_;  ///< source of the examples that steps train on
  std::unique_ptr<LayerSampling> layers_;
  std::unique_ptr<StepExchange> exchange_;  ///< exchange with the other ranks
  Learner learner_;
  WeightUpdate update_;
  StepChecks checks_;
  Assessment assessment_;
  std::unique_ptr<StatisticsPass> statistics_pass_;  ///< null: without bn=rebuild

  bool queues_ahead_ = false, ahead_ = false;  ///< ahead_: work_on() the step to come has been called
  std::exception_ptr failed_ahead_;            ///< failure of work_on() for that step
  std::int64_t step_ = 0;
  std::int64_t weight_gradients_ = 0;  ///< weight gradients of the step that was worked on last
  StepRecord record_;
  double bytes_ = 0;  ///< sent, since gather_times()
};

}  // namespace dat
