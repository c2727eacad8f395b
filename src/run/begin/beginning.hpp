#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run/begin/found.hpp"
#include "train/trainer.hpp"

namespace dat {

/// Beginning of a run.
struct Beginning {
  /// Start of a run: at random weights, at given ones, where it has stopped, or where another one has.
  enum class Way : std::uint8_t { fresh, weights, go_on, branch };
  Way way = Way::fresh;
  bool other_options = false;       ///< true: a branch that does not simply continue the run from which it begins
  std::int64_t step = -1;           ///< step of the checkpoint in the run's own folder; -1: it begins from none
  bool finished = false;            ///< the run has nothing left to do, and these options would report the same; then:
  std::string summary;              ///< report of a finished run
  bool counted_anew = false;        ///< the run's own steps, with another number of ranks: an epoch has others
  std::int64_t metrics_bytes = -1;  ///< bytes of metrics.jsonl at the checkpoint; -1: a new record
  std::string behind;               ///< lines of metrics.jsonl that come behind these (Report::behind_rollback)
  std::int64_t evaluation_due = 0;  ///< 1: the checkpoint's step is still to be evaluated
  bool recorded = false;            ///< the record has the evaluation of the checkpoint's step
  BestRecord best;                  ///< best network in the run's own checkpoint
  std::int64_t since_best = 0;      ///< evaluations since then, where --patience counts them
  std::vector<LeftRecord> left;     ///< ranks that had left at the checkpoint, and stay away
  int part = 0;                     ///< part of the training in which it continues (train/plan/parts.hpp)
  /// Checkpoint for the trainer that can take it up, where ranks stay away, or it continues in a later part.
  std::optional<Checkpoint> state;
  std::string what;  ///< text for the run's first line, e.g. ", going on after step 96"
  std::vector<std::string> warnings;

  [[nodiscard]] bool own() const { return step >= 0; }
};

/// Facts that decide() needs about the run that begins.
struct Planned {
  const Plan& plan;
  std::int64_t images;                               ///< images in the training set
  const std::map<std::string, std::string>& hashes;  ///< Splits::hashes
};

/// The epoch of what a run does first that goes on from a checkpoint: its next step, or the evaluation of the one
/// before. Error(checkpoint): it does not say where it stands.
[[nodiscard]] std::int64_t epoch_at(const Checkpoint& checkpoint);

/// Puts a checkpoint into the trainer of the part that it goes on in, and adds the messages about it. On rank 0.
/// Error(checkpoint): it does not fit the network or the options.
void take_up(const Checkpoint& checkpoint, const TrainOptions& options, Trainer& trainer, Beginning& beginning);

/// Decides how the run begins, by the files that there are and the options: reads nothing, changes nothing. `options`:
/// resolved. Error(usage): the folder holds a run that these options do not continue, or another one's checkpoint does
/// not go with them. Error(checkpoint): no usable checkpoint, or no usable weights.
[[nodiscard]] Beginning decide(const Found& found, const TrainOptions& options, const Planned& now);

/// Looks, decides, and puts the beginning into the trainer. On rank 0 alone, which holds the folder's RunLock; writes
/// nothing. weights: as take_network() returns them. Errors: those of decide(). Error(checkpoint): what there is does
/// not fit the network.
[[nodiscard]] Beginning begin(const TrainOptions& options, const std::string& folder, GivenWeights weights,
                              Trainer& trainer);

}  // namespace dat
