#include <cmath>
#include <numbers>

#include "optimizer/schedules.hpp"

namespace dat {

/// Half a cosine, to zero at the end of the run.
std::unique_ptr<Schedule> make_cosine(const ScheduleOptions& options) {
  return with_warmup(
      options, [options](double step) { return 0.5 * (1 + std::cos(std::numbers::pi * progress(options, step))); });
}

}  // namespace dat
