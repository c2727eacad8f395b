#include <algorithm>
#include <cmath>
#include <numbers>

#include "dat/optimizer.hpp"

namespace dat {

namespace {

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

template <class After>
std::unique_ptr<Schedule> with_warmup(const ScheduleOptions& options, After after) {
  require(options.steps_per_epoch > 0, ExitCode::usage, "an epoch has no steps: lower the batch or give more data");
  require(options.warmup_epochs >= 0 && options.epochs >= 0, ExitCode::usage, "epochs (", options.epochs,
          ") and warm-up epochs (", options.warmup_epochs, ") must not be negative");
  return std::make_unique<WarmupSchedule<After>>(options, std::move(after));
}

std::unique_ptr<Schedule> make_step(const ScheduleOptions& options) {
  return with_warmup(options, [options](std::int64_t step) {
    const std::int64_t epoch = step / options.steps_per_epoch;
    const auto passed = std::count_if(options.milestones.begin(), options.milestones.end(),
                                      [epoch](int milestone) { return milestone <= epoch; });
    return std::pow(options.decay, static_cast<double>(passed));
  });
}

/// The part of the run after the warm-up that `step` (counted from its end) has behind it: 0 to 1.
double progress(const ScheduleOptions& options, std::int64_t step) {
  std::int64_t steps = options.epochs * options.steps_per_epoch;
  if (options.total_steps > 0)
    steps = std::min(steps, options.total_steps - options.warmup_epochs * options.steps_per_epoch);
  return step < steps ? static_cast<double>(step) / static_cast<double>(steps) : 1;
}

std::unique_ptr<Schedule> make_cosine(const ScheduleOptions& options) {
  return with_warmup(options, [options](std::int64_t step) {
    return 0.5 * (1 + std::cos(std::numbers::pi * progress(options, step)));
  });
}

std::unique_ptr<Schedule> make_linear(const ScheduleOptions& options) {
  return with_warmup(options, [options](std::int64_t step) { return 1 - progress(options, step); });
}

}  // namespace

const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)>& schedules() {
  static const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)> registry(
      "schedule", {{"step", make_step}, {"cosine", make_cosine}, {"linear", make_linear}});
  return registry;
}

}  // namespace dat
