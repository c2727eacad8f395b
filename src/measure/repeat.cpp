#include "measure/repeat.hpp"

#include <sys/resource.h>

namespace dat {

Sample summarize(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return {.median = ms[ms.size() / 2], .least = ms.front(), .runs = static_cast<int>(ms.size())};
}

double peak_resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace dat
