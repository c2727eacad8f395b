#include "attack/attacks.hpp"
#include "perturb.hpp"

namespace dat {

namespace {

/// Projected gradient descent in the L-infinity ball (Madry et al. 2018), with DAT's order of clamps: see
/// kernels::PgdStep. With options.stop: PGD-K-tau.
class Pgd final : public Attack {
 public:
  explicit Pgd(const AttackOptions& options)
      : eps_(options.eps),
        alpha_(options.alpha > 0 ? options.alpha : 2.0 / 255),
        steps_(options.steps),
        stop_(options.stop),
        loss_(loss_named(options.loss)) {}

  void perturb(Objective& o) const override { resume(o, 0); }
  void begin(Objective& o, int steps) const override {
    if (loss_ != nullptr) o.loss = loss_;
    start(o, eps_);
    iterate(o, steps);
  }
  void resume(Objective& o, int done) const override {
    if (loss_ != nullptr) o.loss = loss_;
    start(o, eps_);
    iterate(o, steps_ - done);
    each(o.device, o.n * o.layout.elements(), kernels::ClampSum{o.clean, o.eta, o.x_adv});
  }
  void step(Objective& o) const override {
    pgd_step(o, static_cast<float>(alpha_), static_cast<float>(eps_));
    each(o.device, o.n * o.layout.elements(), kernels::ClampSum{o.clean, o.eta, o.x_adv});
  }
  [[nodiscard]] int gradient_evaluations() const override { return steps_; }
  [[nodiscard]] double alpha() const override { return alpha_; }
  [[nodiscard]] bool takes_loss() const override { return true; }

 private:
  [[nodiscard]] static SampleLoss* loss_named(const std::string& name) {
    if (name.empty()) return nullptr;
    if (name == "margin") return margin;
    require(name == "cw", ExitCode::usage, "pgd climbs no loss '", name,
            "'; known: margin, cw (pgd50-margin), or none for cross-entropy");
    return cw_margin;
  }
  void iterate(Objective& o, int steps) const {
    const auto alpha = static_cast<float>(alpha_), eps = static_cast<float>(eps_);
    if (stop_ >= 0) return o.steps_until_fooled(steps, stop_, alpha, eps);
    for (int k = 0; k < steps; ++k) o.gradient_step(alpha, eps);
  }

  double eps_, alpha_;
  int steps_, stop_;
  SampleLoss* loss_;  ///< null: the objective's
};

}  // namespace

std::unique_ptr<Attack> make_pgd(const AttackOptions& options) {
  require(options.steps >= 1, ExitCode::usage, "pgd needs at least one attack step");
  return std::make_unique<Pgd>(options);
}

}  // namespace dat
