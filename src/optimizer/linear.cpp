#include "optimizer/schedules.hpp"

namespace dat {

/// A straight line to zero at the end of the run.
std::unique_ptr<Schedule> make_linear(const ScheduleOptions& options) {
  return with_warmup(options, [options](double step) { return 1 - progress(options, step); });
}

}  // namespace dat
