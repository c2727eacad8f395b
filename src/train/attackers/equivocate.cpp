#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Sends every rank something else than it has committed to, and shows what it has committed to when it is asked.
class Equivocate final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void parts(std::span<float> message) override {
    for (float& value : message) value = -value;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_equivocate(const CheatOptions&) { return std::make_unique<Equivocate>(); }

}  // namespace dat
