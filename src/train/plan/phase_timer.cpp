#include "train/plan/phase_timer.hpp"

#include <algorithm>
#include <utility>

#include "dat/error.hpp"
#include "train/plan/clock.hpp"

namespace dat {

void PhaseTimer::start() {
  started_ = seconds_now();
  laps_.clear();
  laps_.reserve(Backend::kStamps);
  carried_ = since_take_ = {};
  left_out_ = 0;
  last_ = backend_.stamp();
}

double PhaseTimer::wall_time() const { return earlier_ - left_out_ + seconds_now() - started_; }

void PhaseTimer::end_lap(std::optional<Phase> phase) {
  constexpr auto kMost = static_cast<std::size_t>(Backend::kStamps) - 1;  // beside last_
  if (laps_.size() == kMost) collect(carried_);
  if (laps_.size() < kMost) laps_.push_back({phase, backend_.stamp()});
}

void PhaseTimer::end_sum(double seconds_under_way) {
  if (!laps_.empty()) laps_.back().under_way = seconds_under_way;
}

void PhaseTimer::add(Phase phase, double seconds, std::array<double, kPhases>& to) {
  to[static_cast<std::size_t>(phase)] += seconds;
  since_take_[static_cast<std::size_t>(phase)] += seconds;
}

void PhaseTimer::collect(std::array<double, kPhases>& seconds) {
  auto next = laps_.begin();
  for (; next != laps_.end() && backend_.passed(next->stamp); ++next) {
    const double lap = backend_.seconds(last_, next->stamp);
    if (next->phase)
      add(*next->phase, lap, seconds);
    else
      left_out_ += lap;
    if (next->phase == Phase::exposed) exposed_ += lap;
    if (next->phase == Phase::other) exposed_before_ = exposed_;
    if (next->under_way != kNoSum)
      add(Phase::hidden, std::max(0.0, next->under_way - (exposed_ - exposed_before_)), seconds);
    last_ = next->stamp;
  }
  laps_.erase(laps_.begin(), next);
}

std::array<double, kPhases> PhaseTimer::end_step() {
  std::array<double, kPhases> seconds = std::exchange(carried_, {});
  collect(seconds);
  return seconds;
}

void PhaseTimer::save(Checkpoint& checkpoint) { checkpoint.doubles["seconds"] = {wall_time(), exposed_}; }

void PhaseTimer::restore(const Checkpoint& checkpoint) {
  const std::vector<double>& seconds = doubles_of(checkpoint, "seconds");
  require(seconds.size() == 2, ExitCode::checkpoint, "the checkpoint's times are damaged");
  earlier_ = seconds[0];
  exposed_ = seconds[1];
}

void PhaseTimer::share(Communicator& ranks) {
  for (double* const seconds : {&earlier_, &exposed_}) ranks.broadcast(seconds, sizeof *seconds);
}

std::array<double, kPhases> PhaseTimer::take() {
  backend_.wait();
  collect(carried_);
  return std::exchange(since_take_, {});
}

}  // namespace dat
