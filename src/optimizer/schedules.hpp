#pragma once

#include <memory>
#include <utility>

#include "dat/error.hpp"
#include "dat/optimizer.hpp"

namespace dat {

[[nodiscard]] std::unique_ptr<Schedule> make_step(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_cosine(const ScheduleOptions& options);
[[nodiscard]] std::unique_ptr<Schedule> make_linear(const ScheduleOptions& options);

/// `after(t)` is the factor of lr once the warm-up is over.
template <class After>
class WarmupSchedule final : public Schedule {
 public:
  WarmupSchedule(const ScheduleOptions& options, After after)
      : lr_(options.lr), warmup_(options.warmup_epochs * options.steps_per_epoch), after_(std::move(after)) {}

  [[nodiscard]] double lr(std::int64_t step) const override {
    if (step < warmup_) return lr_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
    return lr_ * after_(step - warmup_);
  }

 private:
  double lr_;
  std::int64_t warmup_;
  After after_;
};

/// The linear warm-up, then `after`. Error(usage): epochs that are no epochs.
template <class After>
[[nodiscard]] std::unique_ptr<Schedule> with_warmup(const ScheduleOptions& options, After after) {
  require(options.steps_per_epoch > 0, ExitCode::usage, "an epoch has no steps: lower the batch or give more data");
  require(options.warmup_epochs >= 0 && options.epochs >= 0, ExitCode::usage, "epochs (", options.epochs,
          ") and warm-up epochs (", options.warmup_epochs, ") must not be negative");
  return std::make_unique<WarmupSchedule<After>>(options, std::move(after));
}

/// The part of the run after the warm-up that `step` (counted from its end) has behind it: 0 to 1.
[[nodiscard]] double progress(const ScheduleOptions& options, std::int64_t step);

}  // namespace dat
