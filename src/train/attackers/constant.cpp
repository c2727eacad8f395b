#include <array>
#include <cmath>

#include "perturb.hpp"
#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// One random direction, the same on all attackers and in all steps, each tensor of it a thousand times as long as that
/// of the gradient: as in the public code of BTARD.
class ConstantDirection final : public Cheat {
 public:
  explicit ConstantDirection(const CheatOptions& options) : seed_(options.seed) {}

  [[nodiscard]] Sees sees() const override { return Sees::own; }
  void gradient(const CheatStep& step) override {
    for (const Segment* tensor : step.tensors) {
      const std::array alone{tensor};
      const auto own = [&](std::int64_t i) { return double{step.own[i]}; };
      const auto direction = [&](std::int64_t i) { return normal(i); };
      const double factor = 1000 * std::sqrt(product(alone, own, own) / product(alone, direction, direction));
      for_each_element(alone, [&](std::int64_t i) { step.own[i] = static_cast<float>(factor * normal(i)); });
    }
  }

 private:
  [[nodiscard]] double normal(std::int64_t i) const {
    const Philox4 words = random_words(seed_, Purpose::attackers, 0, static_cast<std::uint64_t>(i / 4), 0);
    return kernels::normal_number<double>(words, static_cast<int>(i % 4));
  }

  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Cheat> make_constant(const CheatOptions& options) {
  return std::make_unique<ConstantDirection>(options);
}

}  // namespace dat
