#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// Inner product manipulation (Xie, Koyejo, Gupta, UAI 2019): the mean of the honest, a little of it, with the other
/// sign.
[[nodiscard]] std::unique_ptr<Cheat> inner_product(double epsilon) {
  return sends(Cheat::Sees::all, [epsilon](const CheatStep& step, std::int64_t i) { return -epsilon * step.mean[i]; });
}

}  // namespace

std::unique_ptr<Cheat> make_ipm01(const CheatOptions&) { return inner_product(0.1); }
std::unique_ptr<Cheat> make_ipm06(const CheatOptions&) { return inner_product(0.6); }

}  // namespace dat
