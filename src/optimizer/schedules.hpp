#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "dat/error.hpp"
#include "dat/optimizer.hpp"

namespace dat {

[[nodiscard]] std::unique_ptr<Schedule> make_step(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_ramps(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_cosine(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_linear(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_cyclic(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_one_cycle(const ScheduleOptions& options);

/// The steps of a run, as a schedule that goes up and down sees them: to its peak, and in all. Error(usage): an
/// epoch has no steps.
struct Course {
  explicit Course(const ScheduleOptions& options);
  double rise;   ///< steps of the warm-up
  double steps;  ///< all steps
};

/// `after(t)` is the factor of lr once the warm-up is over, t >= 0 steps ago.
template <class After>
class WarmupSchedule final : public Schedule {
 public:
  WarmupSchedule(const ScheduleOptions& options, After after)
      : lr_(options.lr), warmup_(Course(options).rise), after_(std::move(after)) {}

  [[nodiscard]] double lr(std::int64_t step) const override {
    const auto k = static_cast<double>(step);
    if (k < warmup_) return lr_ * std::min(k + 1, warmup_) / warmup_;
    return lr_ * after_(k - warmup_);
  }

  [[nodiscard]] double height(std::int64_t step) const override {
    const auto k = static_cast<double>(step);
    return k < warmup_ ? std::min(k + 1, warmup_) / warmup_ : after_(k - warmup_);
  }

 private:
  double lr_, warmup_;
  After after_;
};

/// The linear warm-up, then `after`. Error(usage): an epoch has no steps.
template <class After>
[[nodiscard]] std::unique_ptr<Schedule> with_warmup(const ScheduleOptions& options, After after) {
  return std::make_unique<WarmupSchedule<After>>(options, std::move(after));
}

/// The part of the run after the warm-up that `step` (counted from its end) has behind it: 0 to 1.
[[nodiscard]] double progress(const ScheduleOptions& options, double step);

}  // namespace dat
