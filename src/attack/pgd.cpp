#include "attack/attacks.hpp"
#include "attack/l2.hpp"
#include "perturb.hpp"

namespace dat {

namespace {

/// Projected gradient descent (Madry et al. 2018): in the L-infinity ball with DAT's order of clamps, kernels::PgdStep;
/// in the L2 ball along the normalized gradient, l2_step. With options.stop: PGD-K-tau. The default step in L2 is that
/// of the authors' evaluations (MadryLab/robustness, README).
class Pgd final : public Attack {
 public:
  explicit Pgd(const AttackOptions& options)
      : norm_(options.norm),
        start_radius_(options.start_radius * options.eps),
        start_in_box_(options.start_in_box),
        radius_(step_radius(options)),
        alpha_(options.alpha > 0       ? options.alpha
               : norm_ == BallNorm::l2 ? 2.5 * options.eps / options.steps
                                       : 2.0 / 255),
        steps_(options.steps),
        stop_(options.stop),
        loss_(loss_named(options.loss)) {}

  void perturb(Objective& o) const override { advance(o, 0, steps_); }
  void advance(Objective& o, int done, int count) const override {
    if (loss_ != nullptr) o.loss = loss_;
    start(o, norm_, start_radius_, start_in_box_);
    if (done == 0) keep_first_images(o);
    const bool keeps = done == 0 && o.first_logits != nullptr;
    if (keeps) {
      o.gradient();
      keep_first_logits(o);
      iteration(o);
    }
    iterate(o, keeps ? count - 1 : count);
    if (done + count == steps_)
      each(o.device, o.n * o.layout.elements(), kernels::GivenStart<float>{o.clean, o.eta, o.x_adv});
  }
  [[nodiscard]] int gradient_evaluations() const override { return steps_; }
  [[nodiscard]] double alpha() const override { return alpha_; }
  [[nodiscard]] Needs needs() const override {
    return {.scratch_images = norm_ == BallNorm::l2 ? kL2Images : 0, .early_stop = stop_ >= 0};
  }
  [[nodiscard]] bool takes_loss() const override { return true; }
  [[nodiscard]] bool climbs_goal() const override { return true; }

 private:
  [[nodiscard]] static SampleLoss* loss_named(const std::string& name) {
    if (name.empty()) return nullptr;
    if (name == "margin") return margin;
    require(name == "cw", ExitCode::usage, "pgd climbs no loss '", name,
            "'; known: margin, cw (pgd50-margin), or none for cross-entropy");
    return cw_margin;
  }
  /// Makes a step with the gradient that is in o.dx.
  void iteration(Objective& o) const {
    const auto alpha = static_cast<float>(alpha_);
    norm_ == BallNorm::l2 ? l2_step(o, alpha, radius_) : pgd_step(o, alpha, radius_);
  }
  void iterate(Objective& o, int steps) const {
    const auto alpha = static_cast<float>(alpha_);
    if (stop_ >= 0) return o.steps_until_fooled(steps, stop_, alpha, radius_);
    for (int k = 0; k < steps; ++k)
      if (norm_ == BallNorm::linf) {
        o.gradient_step(alpha, radius_);
      } else {
        o.gradient();
        iteration(o);
      }
  }

  BallNorm norm_;
  double start_radius_;
  bool start_in_box_;
  float radius_;  ///< steps end within it, in L-infinity it may be infinite
  double alpha_;
  int steps_, stop_;
  SampleLoss* loss_;  ///< null: the objective's
};

}  // namespace

std::unique_ptr<Attack> make_pgd(const AttackOptions& options) { return std::make_unique<Pgd>(options); }

}  // namespace dat
