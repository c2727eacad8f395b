#pragma once

#include <array>
#include <optional>
#include <vector>

#include "dat/report.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// Timer of a run's phases. A phase ends where the device passes a stamp, and the next one begins there: so phases add
/// up to the time since start(), but for what is left out. Nothing waits for a stamp: what a step's last phases have
/// cost may be known a step later.
class PhaseTimer final : public Stateful {
 public:
  explicit PhaseTimer(Backend& backend) : backend_(backend) {}

  /// Starts the clock of this part of the run, or of what follows when it has gone back to a checkpoint. Nothing is
  /// allocated after it.
  void start();
  /// Seconds since the run's first start, without the time between its parts.
  [[nodiscard]] double wall_time() const;
  /// Seconds of exposed communication so far.
  [[nodiscard]] double exposed_time() const { return exposed_; }

  /// The phase that has lasted since the last lap ends with what is queued now.
  void lap(Phase phase) { end_lap(phase); }
  /// Excludes the time since the last lap from all phases, and from the run: wall_time() goes without it as soon as the
  /// device has passed it.
  void leave_out() { end_lap({}); }
  /// The sum of the gradients has ended with the last lap, and was under way for so many seconds: the part of these
  /// seconds that the step's laps have not exposed so far was hidden.
  void end_sum(double seconds_under_way);
  /// Seconds by phase that have become known since the last step's end.
  [[nodiscard]] std::array<double, kPhases> end_step();

  /// Seconds by phase since the last call; waits for the device.
  [[nodiscard]] std::array<double, kPhases> take();

  /// Saves wall_time() and exposed_time(), for the next part of the run.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  static constexpr double kNoSum = -1;
  struct Lap {
    std::optional<Phase> phase;  ///< the phase that ends with this lap; none: it is left out
    Backend::Ticket stamp;
    double under_way = kNoSum;  ///< seconds of the sum that ends with this lap
  };
  void end_lap(std::optional<Phase> phase);
  void add(Phase phase, double seconds, std::array<double, kPhases>& to);
  /// Adds the laps that the device has passed to `seconds` and to the totals.
  void collect(std::array<double, kPhases>& seconds);

  Backend& backend_;
  /// started_: by seconds_now(); earlier_: seconds of the parts of the run before this one; left_out_: of this one,
  /// that do not count.
  double started_ = 0, earlier_ = 0, left_out_ = 0, exposed_ = 0;
  double exposed_before_ = 0;              ///< exposed_ when the step began
  std::array<double, kPhases> carried_{};  ///< seconds for the next step's record
  std::array<double, kPhases> since_take_{};
  std::vector<Lap> laps_;  ///< laps whose stamps have not passed yet
  Backend::Ticket last_ = 0;
};

}  // namespace dat
