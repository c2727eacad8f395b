#include "train/attackers/arithmetic.hpp"

namespace dat {

/// A thousand times its gradient, with the other sign, as in the public code of BTARD.
std::unique_ptr<Cheat> make_sign_flip(const CheatOptions&) {
  return sends(Cheat::Sees::own, [](const CheatStep& step, std::int64_t i) { return step.own[i] * -1000; });
}

}  // namespace dat
