#include "optimizer/schedules.hpp"

#include <cmath>

namespace dat {

double steps_of(double epochs, std::int64_t steps_per_epoch) {
  constexpr double kRounding = 1e-6;
  const double steps = epochs * static_cast<double>(steps_per_epoch), whole = std::round(steps);
  return std::fabs(steps - whole) < kRounding ? whole : steps;
}

Course::Course(const ScheduleOptions& options)
    : rise(steps_of(options.warmup_epochs, options.steps_per_epoch)),
      steps(steps_of(options.warmup_epochs + options.epochs, options.steps_per_epoch)) {
  require(options.steps_per_epoch > 0, ExitCode::usage, "an epoch has no steps: lower the batch or give more data");
  if (options.total_steps > 0) steps = std::min(steps, static_cast<double>(options.total_steps));
}

double progress(const ScheduleOptions& options, double step) {
  const Course course(options);
  return step < course.steps - course.rise ? step / (course.steps - course.rise) : 1;
}

const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)>& schedules() {
  static const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)> registry(
      "schedule", {{"step", make_step, {{"milestones"}, {"schedule:decay"}}},
                   {"ramps", make_ramps, {{"milestones"}, {"schedule:decay"}}},
                   {"cosine", make_cosine},
                   {"linear", make_linear},
                   {"cyclic", make_cyclic},
                   {"one_cycle", make_one_cycle, {}, "Smith and Topin, \"Super-convergence\", 2018"}});
  return registry;
}

}  // namespace dat
