#include "run/core_wait.hpp"

#include <algorithm>
#include <fstream>

namespace dat {

CoreWait::Seconds CoreWait::count() const {
  Seconds all;
  std::error_code none;
  for (const auto& task : std::filesystem::directory_iterator(tasks_, none)) {
    std::ifstream file(task.path() / "schedstat");  // running and waiting in nanoseconds, slices
    double running = 0, waiting = 0;
    if (!(file >> running >> waiting)) continue;
    all.running += running * 1e-9;
    all.waiting += waiting * 1e-9;
  }
  return all;
}

double CoreWait::share() const {
  // Threads that have ended since then take their times with them.
  const Seconds now = count();
  const double running = std::max(0.0, now.running - begun_.running),
               waiting = std::max(0.0, now.waiting - begun_.waiting);
  return running + waiting < kLeastSeconds ? 0 : waiting / (running + waiting);
}

}  // namespace dat
