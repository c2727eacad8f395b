#include "backend/cpu/backend.hpp"
#include "catch.hpp"
#include "single.hpp"
#include "train/plan/clock.hpp"
#include "train/plan/phase_timer.hpp"

using namespace dat;

namespace {

using Seconds = std::array<double, kPhases>;

/// A clock that the test sets, and stamps that the device has passed as far as the test says.
class Clocked final : public cpu::CpuBackend {
 public:
  Clocked() : CpuBackend(1, true, "f32") {}
  [[nodiscard]] Ticket stamp() override {
    stamps_.push_back(now);
    return std::ssize(stamps_) - 1;
  }
  [[nodiscard]] bool passed(Ticket stamp) override { return stamp < there; }
  [[nodiscard]] double seconds(Ticket from, Ticket to) override {
    return stamps_[static_cast<std::size_t>(to)] - stamps_[static_cast<std::size_t>(from)];
  }
  void wait() override { there = std::ssize(stamps_); }

  double now = 3;
  Ticket there = 0;

 private:
  std::vector<double> stamps_;
};

struct Run {
  Run() : began(seconds_now()) { timer.start(); }
  void lap(double seconds, Phase phase) {
    clock.now += seconds;
    timer.lap(phase);
  }
  void leave_out(double seconds) {
    clock.now += seconds;
    timer.leave_out();
  }
  /// Returns whether the run's time is so many seconds, and no more than those of the test itself.
  [[nodiscard]] bool has_lasted(double seconds) const {
    return timer.wall_time() >= seconds && timer.wall_time() < seconds + 0.5 + seconds_now() - began;
  }
  double began;
  Clocked clock;
  PhaseTimer timer{clock};
};

[[nodiscard]] Seconds of(std::initializer_list<std::pair<Phase, double>> some) {
  Seconds all{};
  for (const auto& [phase, seconds] : some) all[static_cast<std::size_t>(phase)] = seconds;
  return all;
}

}  // namespace

TEST_CASE("Hidden is what was under way less what the same step has exposed of it", "[phases]") {
  Run run;
  run.timer.end_sum(1000);  // of no lap
  run.lap(1, Phase::other);
  run.lap(2, Phase::backward);
  run.lap(4, Phase::exposed);
  run.lap(8, Phase::decode);
  run.timer.end_sum(32);
  run.lap(16, Phase::exposed);  // of the second message: not of what was under way
  CHECK(run.timer.take() ==
        of({{Phase::other, 1}, {Phase::backward, 2}, {Phase::exposed, 20}, {Phase::decode, 8}, {Phase::hidden, 28}}));
  CHECK(run.timer.exposed_time() == 20);
  run.lap(1, Phase::other);
  run.lap(2, Phase::exposed);
  run.timer.end_sum(64);
  run.lap(1, Phase::other);
  run.lap(4, Phase::exposed);
  run.timer.end_sum(2);  // all of it was exposed
  CHECK(run.timer.take() == of({{Phase::other, 2}, {Phase::exposed, 6}, {Phase::hidden, 62}}));
}

TEST_CASE("A lap is told in the step in which the device has passed its end, and once in all", "[phases]") {
  Run run;
  run.lap(1, Phase::data);
  run.lap(2, Phase::attack);
  run.clock.there = 2;  // the start, and the first lap
  CHECK(run.timer.end_step() == of({{Phase::data, 1}}));
  run.lap(4, Phase::forward);
  run.clock.wait();
  CHECK(run.timer.end_step() == of({{Phase::attack, 2}, {Phase::forward, 4}}));
  run.lap(8, Phase::update);
  CHECK(run.timer.take() == of({{Phase::data, 1}, {Phase::attack, 2}, {Phase::forward, 4}, {Phase::update, 8}}));
  CHECK(run.timer.end_step() == of({{Phase::update, 8}}));
  CHECK((run.timer.take() == Seconds{} && run.timer.end_step() == Seconds{}));
}

TEST_CASE("More laps than there are stamps lose no time", "[phases]") {
  Run run;
  for (int lap = 1; lap < Backend::kStamps; ++lap) run.lap(1, Phase::data);
  run.lap(1, Phase::attack);  // no stamp is left
  run.clock.wait();
  for (int lap = 0; lap < Backend::kStamps; ++lap) {
    run.lap(2, Phase::update);
    run.clock.wait();
  }
  CHECK(run.timer.take() == of({{Phase::data, Backend::kStamps - 1}, {Phase::update, 1 + 2 * Backend::kStamps}}));
}

TEST_CASE("What is left out is in no phase, and not in the run's time", "[phases]") {
  Run run;
  run.lap(2, Phase::backward);
  run.leave_out(1000);
  run.lap(4, Phase::exposed);
  run.leave_out(2000);
  run.timer.end_sum(10);
  CHECK(run.has_lasted(0));
  CHECK(run.timer.take() == of({{Phase::backward, 2}, {Phase::exposed, 4}, {Phase::hidden, 6}}));
  CHECK(run.has_lasted(-3000));
  CHECK(run.timer.exposed_time() == 4);

  // Another part of the run begins with nothing but the times of those before.
  run.lap(1, Phase::data);
  Checkpoint checkpoint;
  checkpoint.doubles["seconds"] = {5000, 7};
  run.timer.restore(checkpoint);
  run.timer.share(test::single());
  run.clock.now += 1;
  run.timer.start();
  CHECK((run.timer.take() == Seconds{} && run.timer.end_step() == Seconds{}));
  CHECK(run.has_lasted(5000));
  run.timer.save(checkpoint);
  CHECK((checkpoint.doubles["seconds"].size() == 2 && checkpoint.doubles["seconds"][0] >= 5000));
  CHECK(checkpoint.doubles["seconds"][1] == 7);
  checkpoint.doubles["seconds"] = {5000};
  CHECK(code_of([&] { run.timer.restore(checkpoint); }) == ExitCode::checkpoint);
}
