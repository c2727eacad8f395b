#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/report.hpp"
#include "train/watch/state_hash.hpp"

namespace dat {

/// Verdict on numbers of several ranks that should be equal.
struct Majority {
  std::vector<std::size_t> differing;  ///< indices of numbers that are not equal on all ranks
  /// Differing numbers in which a rank is not with more than half of all ranks, for each rank. Empty for all ranks
  /// where a number has no such majority.
  std::vector<std::vector<std::size_t>> wrong;
  bool decided = true;  ///< each number has a majority
  int source = -1;      ///< the lowest rank that is with the majority everywhere; -1: there is none
};
/// The majority in values [ranks][numbers].
[[nodiscard]] Majority majority_of(std::span<const std::uint64_t> values, int ranks);

/// "1 on node0" for each rank of a group, by its number in the launch; the texts are empty but on rank 0.
/// **Collective.**
[[nodiscard]] std::vector<std::string> places_of(Communicator& ranks);
/// "rank 1 on node0", "ranks 1 on node0, 3 on node1". places [ranks]: as places_of() has them.
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks, const std::vector<std::string>& places);

/// Compares what the ranks hold in common, by a fingerprint of each array, and puts right what a minority has wrong.
/// The parts must outlive the object.
class ReplicaCheck {
 public:
  ReplicaCheck(Communicator& ranks, Backend& backend, std::vector<Stateful*> parts);
  /// Checks after step number `step`. With `repair`, ranks that differ from the majority get its state, and what was
  /// done is returned, a record for each of them. **Collective**: one small message where nothing differs.
  /// Error(integrity), on all ranks: a difference that is not to be repaired, or that has no majority. Rank 0's message
  /// names the ranks, their hosts and the arrays.
  std::vector<CorruptionRecord> check(std::int64_t step, bool repair);

 private:
  Communicator& ranks_;
  Backend& backend_;
  std::vector<Stateful*> parts_;
  StateHash hash_;
};

}  // namespace dat
