#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Batch statistics that are a thousand times what they were, with an honest gradient.
class BnPoison final : public Cheat {
 public:
  void statistics(std::span<double> numbers) override {
    for (double& number : numbers) number *= 1000;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_bn_poison(const CheatOptions&) { return std::make_unique<BnPoison>(); }

}  // namespace dat
