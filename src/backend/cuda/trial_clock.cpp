#include "backend/cuda/trial_clock.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>

namespace dat::cuda {

double TrialClock::time(Backend::Recording& once, const std::function<void()>& call, double best) {
  warm_up(once);
  constexpr double kEnough = 0.5;  // milliseconds of a graph, against some microseconds between two of them
  constexpr double kPlenty = 20;   // and of a call that needs no second one
  constexpr double kFirst = 1;     // which a first launch takes longer, at most: the graph is brought to the GPU
  constexpr int kMostCalls = 16;
  const double first = least(once, 1, false);
  if (first >= 2 * best + kFirst) return first;
  const double one = std::min(first, least(once, 1));
  if (one >= kPlenty || one >= 2 * best) return one;
  const int calls = std::clamp(static_cast<int>(std::ceil(kEnough / one)), 1, kMostCalls);
  if (calls == 1) return least(once, kReplays);
  const auto several = backend_.capture([&] {
    for (int k = 0; k < calls; ++k) call();
  });
  return least(*several, kReplays) / calls;
}

double TrialClock::least(Backend::Recording& recording, int replays, bool ahead) {
  if (ahead) recording.replay();
  const auto mark = [&](int k) { check(cudaEventRecord(marks_[static_cast<std::size_t>(k)], backend_.stream())); };
  mark(0);
  for (int k = 1; k <= replays; ++k) {
    recording.replay();
    mark(k);
  }
  check(cudaStreamSynchronize(backend_.stream()));
  float best = std::numeric_limits<float>::infinity();
  for (std::size_t k = 1; k <= static_cast<std::size_t>(replays); ++k) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, marks_[k - 1], marks_[k]));
    best = std::min(best, milliseconds);
  }
  return double(std::max(best, 1e-6F));  // the clock's unit is half a microsecond
}

void TrialClock::warm_up(Backend::Recording& recording) {
  static std::once_flag warm;
  std::call_once(warm, [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end) {
      for (int k = 0; k < 8; ++k) recording.replay();
      check(cudaStreamSynchronize(backend_.stream()));
    }
  });
}

}  // namespace dat::cuda
