#include "catch.hpp"
#include "device.hpp"
#include "train/plan/phase_timer.hpp"

using namespace dat;

namespace {

void pass(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

[[nodiscard]] double of(const std::array<double, kPhases>& seconds, Phase phase) {
  return seconds[static_cast<std::size_t>(phase)];
}

}  // namespace

TEST_CASE("Hidden is what was under way less what the same step has exposed of it", "[phases]") {
  const auto backend = test::test_backend();
  PhaseTimer timer(*backend);
  timer.start();
  timer.lap(Phase::other);
  pass(3);
  timer.lap(Phase::backward);
  pass(2);
  timer.lap(Phase::exposed);
  timer.lap(Phase::decode);
  timer.end_sum(10);
  pass(4);  // of the second message: not of what was under way
  timer.lap(Phase::exposed);
  auto seconds = timer.take();
  // Sleeping takes at least what it was asked for. Doubles near 10 are 2^-49 apart.
  CHECK(of(seconds, Phase::backward) >= 0.003);
  CHECK(of(seconds, Phase::exposed) >= 0.006);
  const double both = of(seconds, Phase::exposed), hidden = of(seconds, Phase::hidden);
  CHECK((hidden <= 10 - 0.002 && hidden >= 10 - (both - 0.004) - 1e-12));
  CHECK(timer.exposed_time() == both);

  timer.lap(Phase::other);
  pass(1);
  timer.lap(Phase::exposed);
  timer.end_sum(20);
  seconds = timer.take();
  CHECK(std::abs(of(seconds, Phase::hidden) - (20 - of(seconds, Phase::exposed))) < 1e-12);

  timer.lap(Phase::other);
  pass(1);
  timer.lap(Phase::exposed);
  timer.end_sum(1e-6);  // all of it was exposed
  CHECK(of(timer.take(), Phase::hidden) == 0);
}

TEST_CASE("More laps than there are stamps lose no time", "[phases]") {
  const auto backend = test::test_backend();
  PhaseTimer timer(*backend);
  timer.start();
  const auto begin = std::chrono::steady_clock::now();
  pass(20);
  for (int k = 0; k < 3 * Backend::kStamps; ++k) {
    if (k % 512 == 0) pass(1);
    timer.lap(k % 2 == 0 ? Phase::forward : Phase::backward);
  }
  backend->wait();
  pass(1);
  timer.lap(Phase::other);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::array<double, kPhases> seconds = timer.take();
  const double sum = std::accumulate(seconds.begin(), seconds.begin() + kPhasesInSum, 0.0);
  // Between our look at the clock and the timer's: far less than a millisecond, unless somebody else has the core.
  CHECK(std::abs(sum - wall) <= 0.01 * wall + 1e-3);
}

TEST_CASE("What is left out is in no phase, and not in the run's time", "[phases]") {
  const auto backend = test::test_backend();
  PhaseTimer timer(*backend);
  const auto before = std::chrono::steady_clock::now();
  timer.start();
  pass(2);
  timer.lap(Phase::backward);
  pass(30);
  timer.leave_out();
  pass(2);
  timer.lap(Phase::exposed);
  pass(30);
  timer.leave_out();
  timer.end_sum(10);
  const auto seconds = timer.take();
  const double wall = timer.wall_time();
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  double sum = 0;
  for (int phase = 0; phase < kPhasesInSum; ++phase) sum += seconds[static_cast<std::size_t>(phase)];
  CHECK((of(seconds, Phase::backward) >= 0.002 && of(seconds, Phase::exposed) >= 0.002));
  CHECK((sum >= 0.004 && sum <= all - 0.060));
  CHECK((wall >= sum && wall <= all - 0.060));
  CHECK(timer.exposed_time() == of(seconds, Phase::exposed));
  CHECK(std::abs(of(seconds, Phase::hidden) - (10 - of(seconds, Phase::exposed))) < 1e-12);
}
