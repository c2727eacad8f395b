#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// Inner product manipulation (Xie, Koyejo, Gupta, UAI 2019): the mean of the honest, a little of it, with the other
/// sign.
class InnerProduct final : public Cheat {
 public:
  explicit InnerProduct(double epsilon) : epsilon_(epsilon) {}

  [[nodiscard]] Sees sees() const override { return Sees::all; }
  void gradient(const CheatStep& step) override {
    for_each_element(step.tensors, [&](std::int64_t i) { step.own[i] = static_cast<float>(-epsilon_ * step.mean[i]); });
  }

 private:
  double epsilon_;
};

}  // namespace

std::unique_ptr<Cheat> make_ipm01(const CheatOptions&) { return std::make_unique<InnerProduct>(0.1); }
std::unique_ptr<Cheat> make_ipm06(const CheatOptions&) { return std::make_unique<InnerProduct>(0.6); }

}  // namespace dat
