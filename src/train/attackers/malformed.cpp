#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Sends claims of another length.
class Malformed final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic phase, Letter& letter, int /*to*/, bool /*validates*/) override {
    if (phase == Topic::claims) letter.length() += 4;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_malformed(const CheatOptions&) { return std::make_unique<Malformed>(); }

}  // namespace dat
