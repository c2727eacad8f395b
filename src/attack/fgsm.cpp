#include "attack/attacks.hpp"
#include "attack/l2.hpp"
#include "perturb.hpp"

namespace dat {

namespace {

/// One step of size 1.25 eps from a random start (Wong, Rice, Kolter, "Fast is better than free", 2020), as DAT's fast
/// mode. In the L2 ball: one step of PGD, of that size (as Rice, Wong, Kolter, "Overfitting in adversarially robust
/// deep learning", ICML 2020, in their code; the fast gradient method).
class Fgsm final : public Attack {
 public:
  explicit Fgsm(const AttackOptions& options)
      : norm_(options.norm),
        start_radius_(options.start_radius * options.eps),
        start_in_box_(options.start_in_box),
        radius_(step_radius(options)),
        alpha_(options.alpha > 0 ? options.alpha : 1.25 * options.eps) {}

  void perturb(Objective& o) const override {
    const std::int64_t n = o.n * o.layout.elements();
    const auto alpha = static_cast<float>(alpha_);
    start(o, norm_, start_radius_, start_in_box_);
    each(o.device, n, kernels::GivenStart<float>{o.clean, o.eta, o.x_adv});
    keep_first_images(o);
    o.gradient();
    keep_first_logits(o);
    if (norm_ == BallNorm::l2)
      l2_step(o, alpha, radius_);
    else
      each(o.device, n, kernels::FgsmStep{o.clean, o.dx, o.eta, alpha, radius_});
    each(o.device, n, kernels::GivenStart<float>{o.clean, o.eta, o.x_adv});
  }
  [[nodiscard]] bool prefers_batch_statistics() const override { return true; }
  [[nodiscard]] bool climbs_goal() const override { return true; }
  [[nodiscard]] int gradient_evaluations() const override { return 1; }
  [[nodiscard]] double alpha() const override { return alpha_; }
  [[nodiscard]] Needs needs() const override { return {.scratch_images = norm_ == BallNorm::l2 ? kL2Images : 0}; }

 private:
  BallNorm norm_;
  double start_radius_;
  bool start_in_box_;
  float radius_;
  double alpha_;
};

}  // namespace

std::unique_ptr<Attack> make_fgsm(const AttackOptions& options) { return std::make_unique<Fgsm>(options); }

}  // namespace dat
