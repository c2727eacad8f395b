#include "optimizer/schedules.hpp"

namespace dat {

namespace {

/// One triangle of torch.optim.lr_scheduler.CyclicLR, from zero to lr in the steps of the warm-up and back to zero in
/// those after it, as fast adversarial training has it (locuslab/fast_adversarial, train_fgsm.py): step k has
/// lr * k / rise, so the first one has 0, and the peak may lie between two steps.
class Cyclic final : public Schedule {
 public:
  explicit Cyclic(const ScheduleOptions& options) : lr_(options.lr), course_(options) {}

  [[nodiscard]] double lr(std::int64_t step) const override { return lr_ * height(step); }

  [[nodiscard]] double height(std::int64_t step) const override {
    const auto k = static_cast<double>(step);
    if (k < course_.rise) return k / course_.rise;
    return k < course_.steps ? (course_.steps - k) / (course_.steps - course_.rise) : 0;
  }

  [[nodiscard]] bool rises_by_itself() const override { return true; }

 private:
  double lr_;
  Course course_;
};

}  // namespace

std::unique_ptr<Schedule> make_cyclic(const ScheduleOptions& options) { return std::make_unique<Cyclic>(options); }

}  // namespace dat
