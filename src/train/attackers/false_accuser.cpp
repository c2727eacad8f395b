#include <algorithm>
#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Says of all ranks that their claims about its part are false.
class FalseAccuser final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic phase, Letter& letter, int /*to*/, bool /*validates*/) override {
    if (phase == Topic::accusations) std::fill(letter.bytes().begin(), letter.bytes().end(), std::byte{0xff});
  }
};

}  // namespace

std::unique_ptr<Cheat> make_false_accuser(const CheatOptions&) { return std::make_unique<FalseAccuser>(); }

}  // namespace dat
