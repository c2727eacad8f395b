#include "attack/attacks.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// No attack: plain training.
class None final : public Attack {
 public:
  void perturb(Objective& o) const override {
    const std::int64_t n = o.n * o.layout.elements();
    each(o.device, kernels::groups(n), kernels::Add<float>{o.clean, nullptr, o.x_adv, n});
  }
  [[nodiscard]] int gradient_evaluations() const override { return 0; }
};

}  // namespace

std::unique_ptr<Attack> make_none(const AttackOptions&) { return std::make_unique<None>(); }

}  // namespace dat
