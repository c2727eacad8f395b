#include <cmath>

#include "optimizer/schedules.hpp"

namespace dat {

/// Linear in steps from one milestone to the next, at each of which it has been multiplied by `lr_decay` once more; the
/// first line begins at lr. Source: the schedule of fast adversarial training on ImageNet (Wong, Rice, Kolter, 2020).
std::unique_ptr<Schedule> make_ramps(const ScheduleOptions& options) {
  return with_warmup(options, [options](double step) {
    const double epoch = step / static_cast<double>(options.steps_per_epoch);
    double from = 0, passed = 0;
    for (const int next : options.milestones) {
      if (next > epoch)
        return std::pow(options.lr_decay, passed) * (1 + (options.lr_decay - 1) * (epoch - from) / (next - from));
      from = next;
      ++passed;
    }
    return std::pow(options.lr_decay, passed);
  });
}

}  // namespace dat
