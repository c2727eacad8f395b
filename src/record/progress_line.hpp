#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

#include "dat/report.hpp"

namespace dat {

/// The line that says how far a run is: "step 12/512  epoch 1 of 16  loss 2.0431  acc 21.50 %  812 images/s  ETA 3 min
/// 20 s". Loss, accuracy and speed are means over the steps since this line was written last; the speed is that of the
/// steps alone, without evaluations and checkpoints, and without this process's first step, in which much is made. The
/// reader has a line of its own. Nothing is allocated.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  void add(const StepRecord&, Clock::time_point now);
  /// Seconds since the line was written, or since the first step.
  [[nodiscard]] double waited(Clock::time_point now) const;
  /// Writes the line, with a null after it, and begins the next one. columns: what does not fit is left out, in whole
  /// parts, and the time to the end last of all.
  void write(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns);
  /// Writes a line about an evaluation after the last step, of which this part is done: "step 32/512  epoch 1 of 16
  /// evaluation 40 %  ETA 3 min 20 s".
  void write_evaluation(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns,
                        double part);
  /// The run has gone back: speed and end are those of the steps from here on.
  void begin_anew() { *this = {}; }

 private:
  /// Parts of the line that are left out: the note about the warm-up, the epoch, the speed, the loss, the accuracy, the
  /// step.
  enum Parts : int { all, no_warmup, no_epoch, no_speed, no_loss, no_accuracy, no_step };
  void fit(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns, double part) const;
  /// part: of an evaluation; below 0: there is none.
  void format(fmt::memory_buffer& line, const RunFacts& facts, double left, Parts parts, double part) const;

  Clock::time_point started_, last_;  ///< started_: the end of the first step
  std::int64_t first_step_ = -1, step_ = 0, epoch_ = 0;
  double images_ = 0, seconds_ = 0;           ///< images and seconds after the first step
  double finite_ = 0, loss_ = 0, right_ = 0;  ///< images of steps with finite losses, and sums over them
};

}  // namespace dat
