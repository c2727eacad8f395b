#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options/train/parse.hpp"
#include "train/trainer.hpp"

namespace dat {

/// Where a run begins: at random weights, at given ones, or where it, or another one, has stopped.
struct Beginning {
  std::int64_t step = -1;           ///< of the checkpoint in the run's own folder; -1: it begins from none
  bool finished = false;            ///< the run has nothing left to do, and these options would report the same; then:
  std::string summary;              ///< what it reported
  bool counted_anew = false;        ///< the run's own steps, with another number of ranks: an epoch has others
  std::int64_t metrics_bytes = -1;  ///< of metrics.jsonl at the checkpoint; -1: a new record
  std::string behind;               ///< lines of metrics.jsonl that come behind these (Report::behind_rollback)
  std::int64_t evaluation_due = 0;  ///< 1: the checkpoint's step is still to be evaluated
  bool recorded = false;            ///< the record has the evaluation of the checkpoint's step
  BestRecord best;                  ///< of the run's own checkpoint
  std::int64_t since_best = 0;      ///< evaluations since then, where --patience counts them
  std::vector<LeftRecord> left;     ///< ranks that had left at the checkpoint, and stay away
  std::optional<Checkpoint> state;  ///< where ranks stay away: the checkpoint, for a trainer of those that are left
  std::string what;                 ///< for the run's first line, e.g. ", going on after step 96"
  std::vector<std::string> warnings;

  [[nodiscard]] bool own() const { return step >= 0; }
};

/// The run's folder: --out; else one of the Slurm job, which a job that is queued again finds; else empty: a new one.
[[nodiscard]] std::string folder_of(const TrainOptions& options);
/// Makes a run's new folder, named by the second. On rank 0. Error(io).
[[nodiscard]] std::string make_run_folder();

/// What goes on with a run in this folder, for people: "the same command", with --out where nobody has given that.
[[nodiscard]] std::string same_command(const TrainOptions& options, const std::string& folder);

/// Where a run begins with given weights (`initialize`): its network, width, activation and normalization become those
/// that the file says it was trained with, where neither the command line nor a file or recipe has set them. On every
/// rank; reads the file, or, for a run that goes on, what it wrote down when it began. Error(usage): one of them was
/// set to something else. Error(checkpoint): the file cannot be read.
void take_network(TrainOrder& order);

/// Finds the run's beginning and puts it into the trainer. On rank 0 alone, which holds the folder's RunLock; writes
/// nothing. `options`: resolved. Error(usage): the folder holds a run that these options do not
/// continue. Error(checkpoint): no usable checkpoint, or it does not fit.
[[nodiscard]] Beginning begin(const TrainOptions& options, const std::string& folder, Trainer& trainer);

/// Error(usage): what the run is going to write would replace what it reads; config: the path of --config, empty: none.
/// The run's own config.resolved.toml may be that: it is written again as it was.
void require_apart_from_inputs(const TrainOptions& options, const std::string& config);

}  // namespace dat
