#include "dat/cheat.hpp"

namespace dat {

namespace {

/// The cheat that adversarial training invites: an attack of few steps, or none, saves nearly all of the work.
class Weak final : public Cheat {
 public:
  explicit Weak(int steps) : steps_(steps) {}
  [[nodiscard]] std::optional<int> attack_steps() const override { return steps_; }

 private:
  int steps_;
};

}  // namespace

std::unique_ptr<Cheat> make_weak(const CheatOptions&) { return std::make_unique<Weak>(0); }
std::unique_ptr<Cheat> make_weak1(const CheatOptions&) { return std::make_unique<Weak>(1); }

}  // namespace dat
