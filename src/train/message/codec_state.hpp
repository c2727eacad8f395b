#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dat/reducer.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// State of the codec of the gradients and of the aggregator. A checkpoint has every rank's own arrays, [ranks][count]
/// each, so that a run goes on bit for bit. With another number of ranks than were saved, each rank takes the mean of
/// what they had: the mean over the ranks, which is what gradients lack so far, stays. A checkpoint without these
/// arrays, of a run with another codec or aggregator, leaves what they begin with.
class CodecState final : public Stateful {
 public:
  /// may_go_back: keep() and put_back() work, which takes memory for a second copy.
  CodecState(Communicator& ranks, Backend& backend, const Reducer& reducer, bool may_go_back = false);

  /// Saves the present state before a step. Queued.
  void keep();
  /// Remembers again what keep() has kept. Queued.
  void put_back();

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;
  [[nodiscard]] std::int64_t bytes(int ranks) const;  ///< bytes of what is remembered, in a checkpoint of so many ranks

 private:
  Communicator& ranks_;
  Backend& backend_;
  const Reducer& reducer_;
  std::vector<std::pair<Reducer::State, float*>> kept_;  ///< arrays, and their copies from before the step
  /// Rank 0, until share(): the arrays of all ranks of what every rank has for itself, by their names.
  std::map<std::string, std::vector<float>> restored_;
};

}  // namespace dat
