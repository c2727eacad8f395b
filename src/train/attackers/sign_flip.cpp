#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// A thousand times its gradient, with the other sign, as in the public code of BTARD.
class SignFlip final : public Cheat {
 public:
  [[nodiscard]] Sees sees() const override { return Sees::own; }
  void gradient(const CheatStep& step) override {
    for_each_element(step.tensors, [&](std::int64_t i) { step.own[i] *= -1000; });
  }
};

}  // namespace

std::unique_ptr<Cheat> make_sign_flip(const CheatOptions&) { return std::make_unique<SignFlip>(); }

}  // namespace dat
