#pragma once

#include <optional>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/report.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// Ranks of the launch that have left the run, and their part until its end. Ranks have their numbers of the launch.
/// Every rank has the same list. The list only grows: whoever has left stays away, also when the run goes back to a
/// checkpoint from before.
class Membership {
 public:
  /// world: all ranks of the launch; outlives this.
  explicit Membership(Communicator& world) : world_(world) {}

  [[nodiscard]] const std::vector<LeftRecord>& left() const { return left_; }
  [[nodiscard]] bool has_left(int rank) const;
  /// Adds the records whose ranks have not left yet, and returns these; they have from now on. Error(integrity): rank 0
  /// is one of them, which holds the run's folder and its lock.
  [[nodiscard]] std::vector<LeftRecord> add(const std::vector<LeftRecord>& leaving);

  /// The record of the ranks of a group, as one of all ranks of the launch.
  [[nodiscard]] RankRecord of_launch(const RankRecord& record, const Communicator& group) const;

  /// Sleeps until the others end, on a rank that has left, and returns their exit code.
  [[nodiscard]] ExitCode sleep_until_the_end();
  /// Adds a rank that has never trained: a generator. It receives the end, too.
  void serves(int rank) { serving_.push_back(rank); }
  /// Exit code of the others on such a rank, when they end.
  [[nodiscard]] std::optional<ExitCode> called();
  /// Reports the end of the run and its code to sleeping and serving ranks, on rank 0.
  void wake(ExitCode code);

 private:
  Communicator& world_;
  std::vector<LeftRecord> left_;
  std::vector<int> serving_;
};

/// Returns whether `faults` of the ranks hold less than half of the micro-batches of a step, however many of them they
/// hold as micro-batches are dealt (dat/dealing.hpp).
[[nodiscard]] bool honest_majority(int micro_batches, int ranks, int faults);
/// The options with which the others go on where `gone` of `ranks` ranks have left, each of which is thought to be one
/// of those that may cheat: those of the run, with the batch that it began with. plan: of any group of the run.
/// Error(integrity): no honest majority is left.
[[nodiscard]] TrainOptions options_left(TrainOptions options, const Plan& plan, int ranks, int gone);

}  // namespace dat
