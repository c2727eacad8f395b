#include <cmath>
#include <numbers>

#include "optimizer/schedules.hpp"

namespace dat {

namespace {

/// torch.optim.lr_scheduler.OneCycleLR with its defaults, whose pct_start is the warm-up's part of the run: half a
/// cosine from lr/25 up to lr, another one down to lr/25/1e4 in the last step. As there, the peak lies one step before
/// the warm-up's end. (Smith and Topin, "Super-convergence", 2018, went up and down in straight lines.)
class OneCycle final : public Schedule {
 public:
  explicit OneCycle(const ScheduleOptions& options) : lr_(options.lr), course_(options) {}

  [[nodiscard]] double lr(std::int64_t step) const override {
    constexpr double kDivFactor = 25, kFinalDivFactor = 1e4;
    const double first = lr_ / kDivFactor, end = rises(step) ? first : first / kFinalDivFactor;
    return end + (lr_ - end) * height(step);
  }

  [[nodiscard]] double height(std::int64_t step) const override {
    const auto k = static_cast<double>(step);
    const double part = rises(step) ? 1 - k / peak() : std::min(1.0, (k - peak()) / (course_.steps - 1 - peak()));
    return (std::cos(std::numbers::pi * part) + 1) / 2;
  }

  [[nodiscard]] bool rises_by_itself() const override { return true; }

 private:
  [[nodiscard]] double peak() const { return course_.rise - 1; }
  [[nodiscard]] bool rises(std::int64_t step) const { return peak() > 0 && static_cast<double>(step) <= peak(); }

  double lr_;
  Course course_;
};

}  // namespace

std::unique_ptr<Schedule> make_one_cycle(const ScheduleOptions& options) { return std::make_unique<OneCycle>(options); }

}  // namespace dat
