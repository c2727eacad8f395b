#include <memory>

#include "dat/cheat.hpp"
#include "train/attackers/change_claims.hpp"

namespace dat {

namespace {

/// Claims to be further away from the result than it is.
class FalseNorm final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic phase, Letter& letter, int /*to*/, bool validates) override {
    if (phase == Topic::claims && !validates) change_claims(letter, [](Claim& claim) { claim.norm += 1; });
  }
};

}  // namespace

std::unique_ptr<Cheat> make_false_norm(const CheatOptions&) { return std::make_unique<FalseNorm>(); }

}  // namespace dat
