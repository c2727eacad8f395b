#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/report.hpp"
#include "dat/run_lock.hpp"
#include "run/begin/beginning.hpp"
#include "run/best.hpp"
#include "run/checkpoints.hpp"
#include "run/crowding.hpp"
#include "run/membership.hpp"
#include "train/attackers/attackers.hpp"
#include "train/generators/generator.hpp"
#include "train/trainer.hpp"

namespace dat {

/// A training from start to end: what stands around the trainer's steps. It plans with all ranks of the launch; from
/// then on its calls are **collective** over the group of the trainers, which it holds in one place.
class Run {
 public:
  /// The ranks have compared program and options. weights: as take_network() returns them. argc, argv: of the program,
  /// for the records. **Collective.**
  Run(Communicator& world, const TrainOptions& options, GivenWeights weights, int argc, char** argv);
  /// Trains, and returns the exit code. Error(numerical), Error(integrity): on all ranks alike, but for those that have
  /// left: they return its code. **Collective.**
  int go();
  /// Folder of the run, on rank 0; elsewhere it may be empty.
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  void plan();
  /// Reports the end of the run to those who do not train.
  void end(ExitCode code);
  void open_report();
  /// Runs from the plan to the run's end; returns the exit code.
  [[nodiscard]] ExitCode train();
  /// Steps until the run's end, or until somebody wants it to stop, or this rank has left: then the exit code.
  [[nodiscard]] std::optional<ExitCode> steps();
  /// One step, recorded. False: its numbers were not finite, and the run has gone back to a checkpoint; or it has found
  /// out ranks, which have left.
  [[nodiscard]] bool step();
  /// Reports the last step, and what it has shown of the ranks. **Collective.**
  void tell(const StepRecord& record);
  /// Reports the accusations of the last step, and goes on without those who are banned. False: some are.
  [[nodiscard]] bool tell_accusations();
  /// Makes an evaluation and records it, unless it ends the run and all is well: then finish() records it. Keeps the
  /// weights that are best on what is held out: the averaged ones, where there are any. May go back to a checkpoint
  /// (steps_done()).
  void evaluate();
  /// The robust accuracy on what is held out in the last evaluation: of the averaged weights, where there are any.
  [[nodiscard]] double held_out_accuracy() const;
  /// Returns whether the last evaluation shows catastrophic overfitting; then --on-overfitting decides.
  [[nodiscard]] bool overfits() const;
  void overfitting();
  /// False: the last evaluation has made the run go back to a checkpoint.
  [[nodiscard]] bool finish();

  /// Goes on without these ranks, by a restart in this process (restart.hpp): a new group, whose trainers take up where
  /// the old one's stand. To be called between two steps. `told`: the record has them already. False on a rank that has
  /// left. **Collective** over those who are there.
  [[nodiscard]] bool leave(const std::vector<LeftRecord>& leaving, bool told);
  /// The options of the group that trains now, in a part of the training (train/plan/parts.hpp).
  [[nodiscard]] TrainOptions options_in(int part) const;
  /// Goes on in the part that the next step belongs to, where that is another one, by a restart in this process. To be
  /// called between two steps.
  void enter_next_part();
  /// A restart in this process, in this part of the training. state: on rank 0. **Collective.**
  void restart_in(int part, const std::optional<Checkpoint>& state);
  /// Seconds and bytes since the last such record, on rank 0.
  [[nodiscard]] RankRecord gather_times() { return members_.of_launch(trainer_->gather_times(), *ranks_); }

  /// Compares the ranks' states, and records what has been put right.
  void check();
  /// Records what has been put right.
  void tell_corruptions();
  /// The last evaluation, unless the record has it.
  void record_evaluation();
  /// Sets what rank 0 knows of the checkpoint from which the run continues: whether its evaluation is still to be made,
  /// or is in the record. **Collective.**
  void owe(std::int64_t evaluation_due, bool recorded);
  /// Returns whether --patience ends the run here, before its last step.
  [[nodiscard]] bool stops_early() const;
  [[nodiscard]] std::string provenance();

  /// Length to which metrics.jsonl is about to be cut, and text after the cut.
  struct CutRecord {
    std::int64_t bytes = 0;
    std::string behind{};
  };
  /// Writes a checkpoint. cut: of the record that it is to go on from; null: as the record is.
  void save(Checkpoints::Kind kind, const CutRecord* cut = nullptr);
  /// Completes what the trainer has captured by what the run knows. On rank 0.
  void complete(Checkpoint& state, Checkpoints::Kind kind, const CutRecord* cut);
  /// Goes back to the last good checkpoint, or to the best one, with a lower learning rate. Error(numerical): no more.
  void roll_back(std::string cause, bool to_best);

  Communicator& world_;  ///< all ranks of the launch; for planning
  const TrainOptions& options_;
  std::span<char*> arguments_;            ///< of the program
  std::string folder_, config_;           ///< config_: resolved
  std::unique_ptr<Communicator> ranks_;   ///< ranks that train
  std::unique_ptr<Trainer> trainer_;      ///< null on a generator; and on a rank that has left, as the group is
  std::unique_ptr<Generator> generator_;  ///< null on a trainer
  Membership members_;
  std::vector<Cheater> attackers_;
  std::vector<std::string> hosts_;  ///< [ranks of the launch], on rank 0
  // On rank 0:
  GivenWeights weights_;  ///< weights until the run has begun
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<Report> report_;
  // On all ranks, as rank 0 knows it:
  Beginning beginning_;
  BestNetwork best_;
  Checkpoints checkpoints_;
  std::int64_t evaluation_due_ =
      0;  ///< a stop comes before the evaluation of its step, which the next part makes up for
  std::vector<EvaluationRecord> evaluated_;  ///< the last evaluation that this process has made
  std::int64_t recorded_ = -1;  ///< step of the last evaluation in metrics.jsonl; -1: none for the current weights
  bool recording_ = false;      ///< true: the folder's record is this run's
  bool stopping_ = false;       ///< true: somebody wants the run to stop, soon
  int part_ = 0;                ///< part of the training in which trainer_ is
  std::int64_t checked_ = -1;   ///< the step after which the ranks were compared last
  Crowding crowding_;
};

}  // namespace dat
