#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace dat {

/// Calls work(k) for k = 0 ... count - 1 in any order, on so many threads, or as many as the system gives, this one
/// among them. Throws what the lowest k throws that threw anything.
template <class Index, class Work>
void on_threads(int threads, Index count, const Work& work) {
  std::atomic<Index> next = 0, failed = count;
  std::mutex failing;
  const auto run = [&] {
    for (Index k = next++; k < failed; k = next++) try {
        work(k);
      } catch (...) {
        const std::lock_guard lock(failing);
        failed = std::min(failed.load(), k);
      }
  };
  {  // until all of them have ended
    std::vector<std::jthread> others;
    try {
      for (Index k = 1; k < std::min(static_cast<Index>(threads), count); ++k) others.emplace_back(run);
    } catch (const std::system_error&) {  // the threads that started do it
    }
    run();
  }
  for (Index k = failed; k < count; ++k) work(k);  // once more, for its error; or, where it has none now, all after it
}

}  // namespace dat
