#include <algorithm>
#include <cmath>

#include "optimizer/schedules.hpp"

namespace dat {

/// Linear in steps from one milestone to the next, at each of which it has been multiplied by `lr_decay` once more; the
/// first line begins at lr. Source: the schedule of fast adversarial training on ImageNet (Wong, Rice, Kolter, 2020).
std::unique_ptr<Schedule> make_ramps(const ScheduleOptions& options) {
  return with_warmup(options, [options](double step) {
    const double epoch = step / static_cast<double>(options.steps_per_epoch);
    const std::vector<int>& all = options.milestones;
    const auto next = std::ranges::find_if(all, [epoch](int milestone) { return milestone > epoch; });
    const double above = std::pow(options.lr_decay, static_cast<double>(next - all.begin()));
    if (next == all.end()) return above;
    const double from = next == all.begin() ? 0 : *(next - 1);
    return above * (1 + (options.lr_decay - 1) * (epoch - from) / (*next - from));
  });
}

}  // namespace dat
