#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Cheat that does not show its share of the randomness.
class NoReveal final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic phase, Letter& letter, int /*to*/, bool /*validates*/) override {
    if (phase == Topic::reveal) letter.length() = 0;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_no_reveal(const CheatOptions&) { return std::make_unique<NoReveal>(); }

}  // namespace dat
