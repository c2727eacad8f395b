#include <memory>

#include "dat/cheat.hpp"
#include "train/attackers/change_claims.hpp"

namespace dat {

namespace {

/// Claims another product with the random direction than that of its gradient.
class FalseProduct final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic phase, Letter& letter, int /*to*/, bool validates) override {
    if (phase == Topic::claims && !validates) change_claims(letter, [](Claim& claim) { claim.product += 1; });
  }
};

}  // namespace

std::unique_ptr<Cheat> make_false_product(const CheatOptions&) { return std::make_unique<FalseProduct>(); }

}  // namespace dat
