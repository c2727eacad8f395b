#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run/begin/found.hpp"
#include "train/trainer.hpp"

namespace dat {

/// Where a run begins.
struct Beginning {
  /// At random weights, at given ones, where it has stopped, or where another one has.
  enum class Way : std::uint8_t { fresh, weights, go_on, branch };
  Way way = Way::fresh;
  bool other_options = false;       ///< of a branch: it is not the run that it begins from, going on
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
  int part = 0;                     ///< of the training, that it goes on in (train/plan/parts.hpp)
  /// Where ranks stay away, or it goes on in a later part: the checkpoint, for the trainer that can take it up.
  std::optional<Checkpoint> state;
  std::string what;  ///< for the run's first line, e.g. ", going on after step 96"
  std::vector<std::string> warnings;

  [[nodiscard]] bool own() const { return step >= 0; }
};

/// What decide() must know of the run that begins.
struct Planned {
  const Plan& plan;
  std::int64_t images;                               ///< in the training set
  const std::map<std::string, std::string>& hashes;  ///< Splits::hashes
};

/// The epoch of what a run does first that goes on from a checkpoint: its next step, or the evaluation of the one
/// before. Error(checkpoint): it does not say where it stands.
[[nodiscard]] std::int64_t epoch_at(const Checkpoint& checkpoint);

/// Puts a checkpoint into the trainer of the part that it goes on in, and adds what is to be told of it. On rank 0.
/// Error(checkpoint): it does not fit the network or the options.
void take_up(const Checkpoint& checkpoint, const TrainOptions& options, Trainer& trainer, Beginning& beginning);

/// How the run begins, by what there is and by what is asked: reads nothing, changes nothing. `options`: resolved.
/// Error(usage): the folder holds a run that these options do not continue, or another one's checkpoint does not go
/// with them. Error(checkpoint): no usable checkpoint, or no usable weights.
[[nodiscard]] Beginning decide(const Found& found, const TrainOptions& options, const Planned& now);

/// Looks, decides, and puts the beginning into the trainer. On rank 0 alone, which holds the folder's RunLock; writes
/// nothing. weights: as take_network() returns them. Errors: those of decide(). Error(checkpoint): what there is does
/// not fit the network.
[[nodiscard]] Beginning begin(const TrainOptions& options, const std::string& folder, GivenWeights weights,
                              Trainer& trainer);

}  // namespace dat
