#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace dat {

/// Limits of a confined piece of work.
struct Limits {
  std::int64_t cpu_seconds = 60;
  std::int64_t memory = 64 << 20;  ///< bytes beyond what the process has when it begins
};

/// Extends the time limit of work in confined() from now on. Elsewhere nothing.
void more_time(std::int64_t cpu_seconds);

/// Limits::memory is not kept under sanitizers that map terabytes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kLimitsMemory = false;
#else
inline constexpr bool kLimitsMemory = true;
#endif

/// Runs `work` in a child process within `limits`: files from outside may make a library loop, crash or ask for all
/// memory, and such an end must be the child's alone. Returns when `work` has ended well. `work` can leave nothing
/// behind but files. An Error of `work` is thrown here. Error(data): `work` took more than it may, or crashed; `source`
/// is what the message blames. For processes without MPI and devices.
void confined(const std::string& source, const Limits& limits, const std::function<void()>& work);

}  // namespace dat
