#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/error.hpp"
#include "run/best.hpp"

namespace dat {

/// The name of an array that is not finite; empty: there is none.
[[nodiscard]] std::string not_finite(const Checkpoint& checkpoint);

/// The checkpoints of a run: written in the folder of rank 0, at once or beside the steps (DAT_CHECKPOINT_ASYNC).
class Checkpoints {
 public:
  /// Kind of a checkpoint: of a step, one of the run's own series; or of the best weights so far, beside that series.
  enum class Kind : std::uint8_t { step, best };
  using Warn = std::function<void(const std::string&)>;

  /// Both must outlive it.
  Checkpoints(const TrainOptions& options, BestNetwork& best) : options_(options), best_(best) {}

  /// Opens the folder `ckpt` of the run's folder, on rank 0, as CheckpointFolder does. restored: step of the checkpoint
  /// there that the run goes on from; -1: there is none. warn: called, from the first checkpoint on, with what could
  /// not be written. require_alone: called before that; Error(usage): it is because another process writes there, too.
  void open(const std::string& run_folder, std::int64_t restored, Warn warn, std::function<void()> require_alone);

  /// Writes what `complete` makes of `state`, on rank 0; with DAT_CHECKPOINT_ASYNC, a thread goes on writing. The one
  /// before has been settled. Error(io).
  void write(Kind kind, std::int64_t step, Checkpoint state, const std::function<void(Checkpoint&)>& complete);
  /// Waits for the checkpoint that is being written beside the steps. Error(io), as write(). **Collective.**
  void settle(Communicator& ranks);
  /// Sees to it that ckpt/best.h5 is the best network's. **Collective.**
  void find_best(Communicator& ranks);

  /// The best checkpoint, or the newest one of a step up to the last that was good, for a rollback; steps_per_epoch: of
  /// the count that this step is of, where a checkpoint may be of another one. Empty: there is none. On rank 0.
  [[nodiscard]] std::optional<Checkpoint> to_go_back_to(std::int64_t last_good, std::int64_t steps_per_epoch,
                                                        bool best) const;

 private:
  /// Writes a checkpoint; where that fails, looks first whether another process writes there, too.
  void attempt(const std::function<void()>& writing) const;

  const TrainOptions& options_;
  BestNetwork& best_;
  // On rank 0:
  std::string path_;
  Warn warn_;
  std::function<void()> require_alone_;
  std::unique_ptr<CheckpointFolder> folder_;
  std::future<void> writing_;  ///< the checkpoint under way; ends before what it uses
  bool beside_ = false;        ///< checkpoints are written beside the steps
};

}  // namespace dat
