#include "train/phase_timer.hpp"

#include <utility>

#include "dat/error.hpp"

namespace dat {

void PhaseTimer::start() {
  started_ = std::chrono::steady_clock::now();
  laps_.reserve(Backend::kStamps);
}

double PhaseTimer::wall_time() const {
  return earlier_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

void PhaseTimer::begin_step() { mark(-1); }
void PhaseTimer::lap(Phase phase) { mark(static_cast<int>(phase)); }

void PhaseTimer::mark(int phase) {
  if (laps_.size() < static_cast<std::size_t>(Backend::kStamps)) laps_.push_back({phase, backend_.stamp()});
}

void PhaseTimer::collect(std::array<double, kPhases>& seconds) {
  auto next = laps_.begin();
  for (; next != laps_.end() && backend_.passed(next->stamp); ++next) {
    if (next->phase >= 0) {
      const double lap = backend_.seconds(last_, next->stamp);
      seconds[static_cast<std::size_t>(next->phase)] += lap;
      since_take_[static_cast<std::size_t>(next->phase)] += lap;
      if (next->phase == static_cast<int>(Phase::reduce)) reduction_ += lap;
    }
    last_ = next->stamp;
  }
  laps_.erase(laps_.begin(), next);
}

std::array<double, kPhases> PhaseTimer::end_step() {
  std::array<double, kPhases> seconds = std::exchange(carried_, {});
  collect(seconds);
  return seconds;
}

void PhaseTimer::book(Phase phase, double seconds) {
  carried_[static_cast<std::size_t>(phase)] += seconds;
  since_take_[static_cast<std::size_t>(phase)] += seconds;
}

void PhaseTimer::save(Checkpoint& checkpoint) { checkpoint.doubles["seconds"] = {wall_time(), reduction_}; }

void PhaseTimer::restore(const Checkpoint& checkpoint) {
  const std::vector<double>& seconds = doubles_of(checkpoint, "seconds");
  require(seconds.size() == 2, ExitCode::checkpoint, "the checkpoint's times are damaged");
  earlier_ = seconds[0];
  reduction_ = seconds[1];
}

void PhaseTimer::share(Communicator& ranks) {
  double seconds[] = {earlier_, reduction_};
  ranks.broadcast(seconds, sizeof seconds);
  earlier_ = seconds[0];
  reduction_ = seconds[1];
}

std::array<double, kPhases> PhaseTimer::take() {
  backend_.wait();
  collect(carried_);
  return std::exchange(since_take_, {});
}

}  // namespace dat
