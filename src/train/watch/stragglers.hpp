#pragma once

#include <array>
#include <span>
#include <vector>

#include "dat/communicator.hpp"

namespace dat {

/// Finds which ranks are persistently slower than the others.
///
/// Times are compared window by window, of kWindow steps each; the time of a rank is measured against the median of the
/// others. A rank is slow once it has taken kEach times as long in each of kWindows windows in a row, and kMean times
/// in their mean; it keeps up again once it has stayed below kEach in as many windows. So a rank that becomes slow is
/// found within 20 steps: at most 4 steps of the first window had begun before it became slow. Less than kLeastSeconds
/// per step never counts.
class StragglerRule {
 public:
  static constexpr int kWindow = 5, kWindows = 3;
  static constexpr double kEach = 1.25, kMean = 1.5, kLeastSeconds = 1e-3;
  struct Change {
    int rank = 0;  ///< rank in the group
    bool slow = false;
    double ratio = 1;  ///< the rank's time over the median of the others, in the mean of the windows
  };

  explicit StragglerRule(int ranks);
  /// Takes the seconds [ranks] of a step, in the mean over a window. Returns the ranks that have become slow, or keep
  /// up again; valid until the next call. Allocates nothing.
  [[nodiscard]] std::span<const Change> take(std::span<const double> seconds);

 private:
  struct Rank {
    std::array<double, kWindows> ratios{};  ///< ratios of the last windows; 0: none has been
    bool slow = false;
  };
  std::vector<Rank> ranks_;
  std::vector<double> others_;
  std::vector<Change> changes_;
  int windows_ = 0;
};

/// Compares the seconds that each rank takes for its part of a step: what it has waited in communications is not
/// counted, since there it waits for the slowest.
class Stragglers {
 public:
  explicit Stragglers(Communicator& ranks);
  /// Called when a step begins, and when it ends, on this rank.
  void begin();
  void end();
  /// Compares speeds after a step. Returns the changes, on all ranks alike. **Collective** after every kWindow-th step.
  [[nodiscard]] std::span<const StragglerRule::Change> compare();

 private:
  Communicator& ranks_;
  StragglerRule rule_;
  double began_ = 0, waited_ = 0;  ///< seconds
  struct {
    double mine = 0;  ///< seconds of this rank
    int steps = 0;
  } window_;                 ///< steps since the last comparison
  std::vector<double> all_;  ///< [ranks]
};

}  // namespace dat
