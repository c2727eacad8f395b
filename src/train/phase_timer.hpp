#pragma once

#include <array>
#include <chrono>
#include <vector>

#include "dat/report.hpp"
#include "train/stateful.hpp"

namespace dat {

/// Where the time of a run goes. Within a step, phases end where the device passes a stamp; nothing waits for that:
/// what a step's last phases have cost may be known a step later. Phases of a step add up to its time.
class PhaseTimer final : public Stateful {
 public:
  explicit PhaseTimer(Backend& backend) : backend_(backend) {}

  /// Starts the clock of this part of the run. Nothing is allocated after it.
  void start();
  /// Seconds since the run's first start, without the time between its parts.
  [[nodiscard]] double wall_time() const;
  /// Seconds of the gradients' reduction so far.
  [[nodiscard]] double reduction_time() const { return reduction_; }

  void begin_step();
  /// The phase that has lasted since the last lap, or since the step began, ends with what is queued now.
  void lap(Phase phase);
  /// Seconds by phase that have become known since the last step's end: those of this step and what was booked.
  [[nodiscard]] std::array<double, kPhases> end_step();
  /// Time of the host between steps.
  void book(Phase phase, double seconds);

  /// Seconds by phase since the last call; waits for the device.
  [[nodiscard]] std::array<double, kPhases> take();

  /// The two times, for the next part of the run.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  struct Lap {
    int phase;  ///< that ends here; -1: none, a step begins
    Backend::Ticket stamp;
  };
  void mark(int phase);
  /// Adds the laps that the device has passed to `seconds` and to the totals.
  void collect(std::array<double, kPhases>& seconds);

  Backend& backend_;
  std::chrono::steady_clock::time_point started_;
  double earlier_ = 0, reduction_ = 0;     ///< earlier_: of the parts of the run before this one
  std::array<double, kPhases> carried_{};  ///< for the next step's record
  std::array<double, kPhases> since_take_{};
  std::vector<Lap> laps_;  ///< not passed yet
  Backend::Ticket last_ = 0;
};

}  // namespace dat
