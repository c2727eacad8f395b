#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Cheat that does not recompute another rank's work when it should, and claims what all have heard.
class IdleValidator final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  [[nodiscard]] const Contribution* story(const PendingCheck& check) override {
    story_ = {.roots = check.commitments, .numbers = check.numbers, .claims = check.claims};
    return &story_;
  }

 private:
  Contribution story_;
};

}  // namespace

std::unique_ptr<Cheat> make_idle_validator(const CheatOptions&) { return std::make_unique<IdleValidator>(); }

}  // namespace dat
