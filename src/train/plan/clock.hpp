#pragma once

#include <chrono>

namespace dat {

/// Seconds of the steady clock.
[[nodiscard]] inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace dat
