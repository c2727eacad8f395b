#include <algorithm>
#include <cmath>

#include "optimizer/schedules.hpp"

namespace dat {

/// Multiplied by `lr_decay` at each milestone.
std::unique_ptr<Schedule> make_step(const ScheduleOptions& options) {
  return with_warmup(options, [options](double step) {
    const double epoch = step / static_cast<double>(options.steps_per_epoch);
    const auto passed =
        std::ranges::count_if(options.milestones, [epoch](int milestone) { return milestone <= epoch; });
    return std::pow(options.lr_decay, static_cast<double>(passed));
  });
}

}  // namespace dat
