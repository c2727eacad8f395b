#include "attack/apgd_loop.hpp"

namespace dat {

namespace {

/// AutoAttack's three uses of auto-PGD: 100 iterations from a random start, on cross-entropy, on the difference of
/// logits ratio, or on the targeted form of that, for one target after the other.
class Apgd final : public Attack {
 public:
  Apgd(const AttackOptions& options, Searching attack, SampleLoss* loss)
      : options_(options), attack_(attack), loss_(loss), targets_(targeted() ? targets_of(options) : 1) {}

  void perturb(Objective& o) const override {
    o.loss = loss_;
    apgd(o, {.norm = options_.norm,
             .eps = options_.eps,
             .iterations = kIterations,
             .rank = targeted() ? 1 + o.run / options_.restarts : 0,
             .attack = attack_,
             .best_loss = options_.best_loss});
  }
  [[nodiscard]] int runs() const override { return targets_ * options_.restarts; }
  [[nodiscard]] std::string notice() const override {
    const int classes = options_.classes;
    const std::string targets = targeted() ? targets_notice(classes) : "";
    if (attack_ == Searching::apgd_ce || classes > (targeted() ? 3 : 2)) return targets;
    return (targeted() ? targets + "; there is" : "a network of " + std::to_string(classes) + " classes has") +
           (classes > 2 ? " no fourth logit: apgd-t divides by z_(1) - z_(3)"
                        : std::string(" no third logit: ") + (targeted() ? "apgd-t" : "apgd-dlr") +
                              " climbs the margin itself");
  }
  [[nodiscard]] int gradient_evaluations() const override { return runs() * (kIterations + 1); }
  [[nodiscard]] double alpha() const override { return 2 * options_.eps; }
  [[nodiscard]] Needs needs() const override { return {.scratch_images = apgd_images(options_.norm)}; }

 private:
  static constexpr int kIterations = 100;
  [[nodiscard]] bool targeted() const { return attack_ == Searching::apgd_t; }

  AttackOptions options_;
  Searching attack_;
  SampleLoss* loss_;
  int targets_;
};

}  // namespace

std::unique_ptr<Attack> make_apgd_ce(const AttackOptions& options) {
  return std::make_unique<Apgd>(options, Searching::apgd_ce, cross_entropy);
}
std::unique_ptr<Attack> make_apgd_dlr(const AttackOptions& options) {
  return std::make_unique<Apgd>(options, Searching::apgd_dlr, dlr);
}
std::unique_ptr<Attack> make_apgd_t(const AttackOptions& options) {
  return std::make_unique<Apgd>(options, Searching::apgd_t, targeted_dlr);
}

}  // namespace dat
