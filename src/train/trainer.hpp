#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assess/assessment.hpp"
#include "dat/reducer.hpp"
#include "reduce/summation_tree.hpp"
#include "replica/model_state.hpp"
#include "train/examples/local_examples.hpp"
#include "train/layers/sampling.hpp"
#include "train/learner/learner.hpp"
#include "train/learner/weight_perturbation.hpp"
#include "train/message/codec_state.hpp"
#include "train/plan/splits.hpp"
#include "train/update/statistics_pass.hpp"
#include "train/update/weight_update.hpp"
#include "train/watch/finite.hpp"
#include "train/watch/replica_check.hpp"
#include "train/watch/stragglers.hpp"
#include "train/watch/verification.hpp"

namespace dat {

/// The training of one network on all ranks: puts the parts of a step together and takes the steps. Construction plans
/// everything and calls no collective; after start() nothing is allocated in step().
class Trainer {
 public:
  /// Error(usage): options that do not fit each other or the data; Error(data), Error(device).
  Trainer(Communicator& ranks, const TrainOptions& options);
  /// The same on other images than those that the options name.
  Trainer(Communicator& ranks, const TrainOptions& options, Splits splits);

  /// Starts the clock and the source of examples, at the step restored or at 0.
  void start();
  /// One step: attack, gradients of the active layers, reduction, update. **Collective.** `stop` is this rank's wish to
  /// end; stop_agreed() tells afterwards whether any rank had it. Where a number is not finite nothing is updated: the
  /// step is skipped, up to max_bad_steps in a row. On all ranks alike: Error(numerical) where no more may be skipped,
  /// and the step has not been done; Error(integrity) where a rank repeats the draw of layers and finds another, or a
  /// micro-batch that is recomputed is another one. With --on-corruption repair, a step whose gradient is wrong updates
  /// nothing.
  const StepRecord& step(bool stop);
  [[nodiscard]] bool stop_agreed() const { return vote_.stop_agreed(); }
  /// Why the step before was skipped; empty: it was not.
  [[nodiscard]] const std::string& skipped() const { return skipped_; }
  [[nodiscard]] const Setbacks& setbacks() const { return setbacks_; }
  [[nodiscard]] std::int64_t steps_done() const { return step_; }

  /// Accuracy on the test set, then on what is held out, clean and under each attack of --eval, with rank 0's running
  /// statistics; then all of it with the averaged weights, where there are any. **Collective.**
  [[nodiscard]] std::vector<EvaluationRecord> evaluate();

  /// Makes what an evaluation of the averaged weights needs, where it is not there yet: with --average-bn rebuild, a
  /// pass over the training images. **Collective.**
  void complete_average();
  /// The state as a checkpoint, on rank 0; complete_average() comes before, where the averaged weights shall be used
  /// from it. **Collective.**
  [[nodiscard]] Checkpoint capture();
  /// Takes up a checkpoint, on rank 0, in a trainer just made; share_state then gives it to all. Error(checkpoint): it
  /// does not fit.
  void restore(const Checkpoint& checkpoint);
  /// Rank 0's state to all ranks. **Collective.**
  void share_state();
  /// A rollback, in a trainer that has been restored from an earlier checkpoint of the run: counts it, and goes on with
  /// lr_factor times the rates that were in force. before: what had happened until then.
  void set_back(const Setbacks& before, double lr_factor);
  /// Gives its images to the next trainer. This one can only be destroyed afterwards.
  [[nodiscard]] Splits release_splits() { return std::move(splits_); }
  [[nodiscard]] std::int64_t checkpoint_bytes() const;
  /// Error(integrity) where what the ranks hold in common differs, unless it is repaired (ReplicaCheck).
  /// **Collective.**
  void check_replicas();
  /// What has been repaired since the last call; the texts are rank 0's.
  [[nodiscard]] std::vector<CorruptionRecord> take_corruptions() { return std::exchange(corruptions_, {}); }
  /// Shows all that check_replicas() compares.
  void replicated(ReplicatedState& state) {
    for (Stateful* part : parts()) part->replicated(state);
  }
  [[nodiscard]] std::string weights_hash() const { return dat::weights_hash(model()); }

  /// The ranks that have become slow, or keep up again, with the last steps; on all ranks alike. To be called after
  /// each step. **Collective** (Stragglers).
  [[nodiscard]] std::span<const StragglerRule::Change> compare_speed() { return stragglers_.compare(); }

  /// Seconds and bytes of every rank since the last call, on rank 0. **Collective.**
  [[nodiscard]] RankRecord gather_times();
  [[nodiscard]] PhaseTimer& timer() { return timer_; }

  /// What it is made of.
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Splits& splits() const { return splits_; }
  [[nodiscard]] Replica& replica() { return replica_; }
  [[nodiscard]] const Model& model() const { return replica_.model(); }
  [[nodiscard]] const Attack& attack() const { return *attack_; }
  [[nodiscard]] const LocalExamples& examples() const { return source_; }
  [[nodiscard]] const LayerSampling& layers() const { return *layers_; }
  [[nodiscard]] const Reducer& reducer() const { return *reducer_; }
  [[nodiscard]] const EvaluationAttacks& evaluation_attacks() const { return evaluation_attacks_; }
  /// The options with every number that planning has decided.
  [[nodiscard]] TrainOptions resolved() const;

 private:
  [[nodiscard]] std::vector<Stateful*> parts() {
    return {&update_, &statistics_, layers_.get(), &codec_state_, &source_, &timer_, &setbacks_};
  }
  [[nodiscard]] bool verified();
  void skip(const BadNumbers& bad);
  void leave_out();
  /// Of gradients in this block.
  [[nodiscard]] std::unique_ptr<Reducer> make_reducer(float* gradients, const std::string& codec,
                                                      const std::string& codec_transport,
                                                      const std::string& aggregator);
  [[nodiscard]] std::unique_ptr<WeightPerturbation> make_perturbation();
  void reducer_ended(ReducerStage stage);
  const StepRecord& record(std::int64_t weight_gradients);

  Communicator& ranks_;
  TrainOptions options_;
  Splits splits_;
  Plan plan_;
  std::optional<const SummationTree> order_;  ///< of sums over micro-batches; none: each rank has its own
  std::unique_ptr<Attack> attack_;
  bool unlabelled_;  ///< some training images have no label
  std::unique_ptr<Loss> loss_;
  EvaluationAttacks evaluation_attacks_;
  Replica replica_;
  PhaseTimer timer_;
  int attack_passes_;  ///< of the attack, in training mode, of a micro-batch
  BatchStatistics statistics_;
  LocalExamples source_;
  std::unique_ptr<LayerSampling> layers_;
  std::unique_ptr<Reducer> reducer_;
  CodecState codec_state_;
  Learner learner_;
  WeightUpdate update_;
  Vote vote_;
  NumberCheck numbers_;
  Setbacks setbacks_;
  StepMessage message_;
  Stragglers stragglers_;
  Assessment assessment_;
  std::unique_ptr<WeightPerturbation> perturbation_;  ///< null: without --awp-gamma
  ExampleSource* examples_;                           ///< that steps train on: source_, or what wraps it
  std::unique_ptr<Recompute> recompute_;              ///< null: without --verify
  std::unique_ptr<Verification> verification_;
  std::unique_ptr<ReplicaCheck> check_;
  std::unique_ptr<StatisticsPass> statistics_pass_;  ///< null: without --average-bn rebuild
  std::vector<CorruptionRecord> corruptions_;

  bool resident_ = false;  ///< the training set is in the device's memory
  std::int64_t step_ = 0;
  std::string skipped_;
  StepRecord record_;
  double bytes_ = 0;              ///< sent, since gather_times()
  std::int64_t drawn_bytes_ = 0;  ///< sent for the draw of layers, in this step
  Phase around_reducer_ = Phase::select;
};

}  // namespace dat
