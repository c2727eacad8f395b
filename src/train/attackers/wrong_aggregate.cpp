#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Makes something else of its part of the gradients: the result, 1000 times as long, in the other direction.
class WrongAggregate final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void aggregate(std::span<float> part) override {
    for (float& value : part) value *= -1000;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_wrong_aggregate(const CheatOptions&) { return std::make_unique<WrongAggregate>(); }

}  // namespace dat
