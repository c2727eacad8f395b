#include <algorithm>
#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Sends no parts of its gradient, and does not show them either.
class Silent final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void parts(std::span<float> message) override { std::fill(message.begin(), message.end(), 0.0F); }
  void message(Topic phase, Letter& letter, int /*to*/, bool /*validates*/) override {
    if (phase == Topic::salts || phase == Topic::show) letter.length() = 0;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_silent(const CheatOptions&) { return std::make_unique<Silent>(); }

}  // namespace dat
