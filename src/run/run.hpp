#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/report.hpp"
#include "dat/run_lock.hpp"
#include "run/beginning.hpp"
#include "run/best.hpp"
#include "run/checkpoints.hpp"
#include "run/crowding.hpp"
#include "train/trainer.hpp"

namespace dat {

/// A training from start to end: what stands around the trainer's steps. It plans with all ranks of the launch; from
/// then on its calls are **collective** over the group of the trainers, which it holds in one place.
class Run {
 public:
  /// The ranks have compared program and options. argc, argv: of the program, for the records. **Collective.**
  Run(Communicator& world, const TrainOptions& options, int argc, char** argv);
  /// Trains, and returns the exit code. Error(numerical), Error(integrity): on all ranks alike. **Collective.**
  int go();

 private:
  void plan();
  void open_report();
  /// Steps until the run's end, or until somebody wants it to stop: then true.
  [[nodiscard]] bool steps();
  /// One step, recorded. False: its numbers were not finite, and the run has gone back to a checkpoint.
  [[nodiscard]] bool step();
  /// Makes an evaluation and records it, unless it ends the run: then finish() records it. Keeps the weights that are
  /// best on what is held out: the averaged ones, where there are any. May go back to a checkpoint (steps_done()).
  void evaluate();
  /// Catastrophic overfitting has been seen: as --on-overfitting says.
  void overfitting(double accuracy);
  /// False: the last evaluation has made the run go back to a checkpoint.
  [[nodiscard]] bool finish();
  /// A signal ends the run after this step.
  void stop();

  /// Compares the ranks' states, and records what has been put right.
  void check();
  /// Records what has been put right.
  void tell_corruptions();
  void record_evaluation();
  /// Whether --patience ends the run here, before its last step.
  [[nodiscard]] bool stops_early() const;
  /// The early end, for the summary.
  [[nodiscard]] std::string early_end_text() const;
  [[nodiscard]] std::string provenance();

  /// Writes a checkpoint. `record`: length of metrics.jsonl that it is to go on from; empty: as it is.
  void save(Checkpoints::Kind kind, std::optional<std::int64_t> record = {});
  /// Completes what the trainer has captured by what the run knows. On rank 0.
  void complete(Checkpoint& state, Checkpoints::Kind kind, std::optional<std::int64_t> record);
  /// Goes back to the last good checkpoint, or to the best one, with a lower learning rate. Error(numerical): no more.
  void roll_back(std::string cause, bool to_best);

  Communicator& world_;  ///< of the launch; for planning
  const TrainOptions& options_;
  int argc_;
  char** argv_;
  std::string folder_, config_;          ///< config_: resolved
  std::unique_ptr<Communicator> ranks_;  ///< that train
  std::unique_ptr<Trainer> trainer_;
  std::vector<std::string> hosts_;  ///< [ranks], on rank 0
  // On rank 0:
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<Report> report_;
  // On all ranks, as rank 0 knows it:
  Beginning beginning_;
  BestNetwork best_;
  Checkpoints checkpoints_;
  std::int64_t evaluation_due_ =
      0;  ///< a stop comes before the evaluation of its step, which the next part makes up for
  std::vector<EvaluationRecord> evaluated_;  ///< the last evaluation that this process has made
  bool stopping_ = false;                    ///< somebody wants the run to stop, soon
  std::int64_t checked_ = -1;                ///< the step after which the ranks were compared last
  Crowding crowding_;
};

}  // namespace dat
