#include "attack/fab_loop.hpp"

namespace dat {

namespace {

/// AutoAttack's two uses of FAB: 100 iterations towards the nearest of all wrong classes, or towards one target after
/// the other. The first run for a target begins at the clean image and is the same every time; further ones begin at
/// random, in half the ball.
class Fab final : public Attack {
 public:
  Fab(const AttackOptions& options, Searching attack)
      : options_(options), attack_(attack), targets_(targets_of(options)) {}

  void perturb(Objective& o) const override {
    o.loss = class_difference;
    fab(o, {.norm = options_.norm,
            .eps = options_.eps,
            .iterations = kIterations,
            .rank = targeted() ? 1 + o.run / options_.restarts : 0,
            .random_start = o.run % options_.restarts > 0 || o.time > 0,
            .attack = attack_});
  }
  [[nodiscard]] int runs() const override { return (targeted() ? targets_ : 1) * options_.restarts; }
  [[nodiscard]] std::string notice() const override {
    return targeted() ? targets_notice(options_.classes) : std::string();
  }
  [[nodiscard]] int gradient_evaluations() const override {
    return runs() * kIterations * (targeted() ? 1 : options_.classes - 1);
  }
  [[nodiscard]] Needs needs() const override { return {.scratch_images = kFabImages}; }

 private:
  static constexpr int kIterations = 100;
  [[nodiscard]] bool targeted() const { return attack_ == Searching::fab_t; }

  AttackOptions options_;
  Searching attack_;
  int targets_;
};

}  // namespace

std::unique_ptr<Attack> make_fab(const AttackOptions& options) {
  return std::make_unique<Fab>(options, Searching::fab);
}
std::unique_ptr<Attack> make_fab_t(const AttackOptions& options) {
  return std::make_unique<Fab>(options, Searching::fab_t);
}

}  // namespace dat
