#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "dat/backend.hpp"

// Timing of `dat_hpc bench` and of the programs of bench/.
namespace dat {

[[nodiscard]] inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Milliseconds of one run of the same work, out of some runs.
struct Sample {
  double median = 0, least = 0;
  int runs = 0;  ///< 0: not measured
};
[[nodiscard]] inline Sample summarize(std::vector<double> ms) {
  std::ranges::sort(ms);
  return {.median = ms[ms.size() / 2], .least = ms.front(), .runs = static_cast<int>(ms.size())};
}

/// Number of repetitions of work: until `seconds` have passed, but within these numbers of runs. A run before them is
/// not counted, unless the work is `warm`.
struct Effort {
  double seconds = 0;
  int least = 1, most = 1;
  bool warm = false;
  [[nodiscard]] static Effort runs(int count) { return {.seconds = 0, .least = count, .most = count}; }
};

template <class F>
[[nodiscard]] Sample repeat(const Effort& effort, const F& run) {
  const double end = now_ms() + 1e3 * effort.seconds;
  if (!effort.warm) run();
  std::vector<double> times;
  do {
    const double begin = now_ms();
    run();
    times.push_back(now_ms() - begin);
  } while (static_cast<int>(times.size()) < (now_ms() < end ? effort.most : effort.least));
  return summarize(std::move(times));
}

/// Measures one call of `work`, in a recording of as many calls as the clock needs.
template <class F>
[[nodiscard]] Sample repeat_recorded(Backend& backend, const Effort& effort, const F& work) {
  constexpr double kEnough = 5;
  const auto once = [&] {
    work();
    backend.wait();
  };
  const double one = repeat(Effort::runs(3), once).least;
  const int calls = std::clamp(static_cast<int>(kEnough / one), 1, 100);
  const auto recording = backend.record([&] {
    for (int k = 0; k < calls; ++k) work();
  });
  Sample sample = repeat(effort, [&] {
    recording->replay();
    backend.wait();
  });
  sample.median /= calls;
  sample.least /= calls;
  return sample;
}

}  // namespace dat
