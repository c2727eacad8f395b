#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// A little is enough: as far from the mean of the honest as honest ranks are (deviations_allowed), on one side in
/// every coordinate.
class Alie final : public Cheat {
 public:
  explicit Alie(const CheatOptions& options) : z_(deviations_allowed(options.ranks, options.attackers)) {}

  [[nodiscard]] Sees sees() const override { return Sees::all; }
  void gradient(const CheatStep& step) override {
    for_each_element(step.tensors, [&](std::int64_t i) {
      step.own[i] = static_cast<float>(double{step.mean[i]} - z_ * double{step.deviation[i]});
    });
  }

 private:
  double z_;
};

}  // namespace

std::unique_ptr<Cheat> make_alie(const CheatOptions& options) { return std::make_unique<Alie>(options); }

}  // namespace dat
