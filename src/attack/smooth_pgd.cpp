#include "attack/attacks.hpp"
#include "attack/l2.hpp"
#include "dat/error.hpp"
#include "noise.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// -ln max(p_y, 1e-20) of the mean prediction p.
void floored_cross_entropy(const Logits& logits, float scale) {
  cross_entropy(logits, scale);
  each(logits.device, logits.n, kernels::FloorOfLikelihood{logits.loss, logits.gradient, logits.classes});
}

/// SmoothAdv-PGD, as its authors' code has it (Salman et al., "Provably Robust Deep Learning via Adversarially Trained
/// Smoothed Classifiers", NeurIPS 2019; repository Hadisalman/smoothing-adversarial, attacks.py): from the clean image,
/// steps of 2 eps / steps along the normalized gradient of -ln(mean prediction of the label), the box first, then the
/// ball. The loss of one copy is plain cross-entropy. Where the gradient is 0, the direction is normal, and not
/// normalized.
class SmoothPgd final : public Attack {
 public:
  explicit SmoothPgd(const AttackOptions& options)
      : eps_(static_cast<float>(options.eps)),
        alpha_(options.alpha > 0 ? options.alpha : 2 * options.eps / options.steps),
        steps_(options.steps) {}

  void perturb(Objective& o) const override {
    o.loss = o.copies > 1 ? floored_cross_entropy : cross_entropy;
    const std::int64_t pixels = o.n * o.layout.elements();
    each(o.device, pixels, kernels::Scale{o.clean, o.eta, 0.0F, false});
    each(o.device, kernels::groups(pixels), kernels::Add<float>{o.clean, nullptr, o.x_adv, pixels});
    Scratch<Objective> scratch(o);
    L2Norms<Objective> norms(o, scratch);
    const kernels::Strips strips{o.layout.elements()};
    for (int k = 0; k < steps_; ++k) {
      o.gradient();
      each(o.device, o.n * o.layout.fours(),
           kernels::SmoothAdvMove<float>{o.clean, o.dx, norms.of(o.dx), o.eta, o.sample_ids, o.layout, o.seed,
                                         o.purpose, o.time, static_cast<std::uint32_t>(k), static_cast<float>(alpha_)});
      each(o.device, o.n * strips.per_image(),
           kernels::ShrinkIntoBall<float>{strips, o.clean, norms.of(o.eta), o.eta, o.x_adv, eps_});
    }
  }
  [[nodiscard]] int gradient_evaluations() const override { return steps_; }
  [[nodiscard]] double alpha() const override { return alpha_; }
  [[nodiscard]] bool random() const override { return false; }
  [[nodiscard]] Needs needs() const override { return {.scratch_images = kL2Images}; }

 private:
  float eps_;
  double alpha_;
  int steps_;
};

}  // namespace

std::unique_ptr<Attack> make_smooth_pgd(const AttackOptions& options) {
  require(options.norm == BallNorm::l2, ExitCode::usage,
          "smooth-pgd steps along the gradient in the L2 ball; give l2 as the norm of its attack");
  return std::make_unique<SmoothPgd>(options);
}

}  // namespace dat
