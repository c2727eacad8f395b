#pragma once

#include <atomic>
#include <cstdint>

namespace dat {

/// Number of times that the main thread has reported progress. The hang watch (--comm-timeout) looks at it from another
/// thread.
inline std::atomic<std::uint64_t> ticks{0};
/// Set in the main thread by the hang watch: what other threads do says nothing about whether this one hangs.
inline thread_local bool ticking = false;

/// The main thread gets on. Called between pieces of what takes long together and communicates nothing: the layers of a
/// pass, trials of algorithms, arrays of a file. A piece that takes longer than --comm-timeout, while all other ranks
/// wait for this one, is a hang.
inline void tick() noexcept {
  if (ticking) ticks.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace dat
