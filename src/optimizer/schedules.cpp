#include "optimizer/schedules.hpp"

#include <algorithm>

namespace dat {

double progress(const ScheduleOptions& options, std::int64_t step) {
  std::int64_t steps = options.epochs * options.steps_per_epoch;
  if (options.total_steps > 0)
    steps = std::min(steps, options.total_steps - options.warmup_epochs * options.steps_per_epoch);
  return step < steps ? static_cast<double>(step) / static_cast<double>(steps) : 1;
}

const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)>& schedules() {
  static const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)> registry(
      "schedule", {{"step", make_step}, {"cosine", make_cosine}, {"linear", make_linear}});
  return registry;
}

}  // namespace dat
