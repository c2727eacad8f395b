#include "attack/attacks.hpp"
#include "perturb.hpp"

namespace dat {

namespace {

/// One step of size 1.25 eps from a random start (Wong, Rice, Kolter, "Fast is better than free", 2020), as DAT's fast
/// mode.
class Fgsm final : public Attack {
 public:
  explicit Fgsm(const AttackOptions& options)
      : eps_(options.eps), alpha_(options.alpha > 0 ? options.alpha : 1.25 * options.eps) {}

  void perturb(Objective& o) const override {
    const std::int64_t n = o.n * o.layout.elements();
    start(o, eps_);
    each(o.device, n, kernels::ClampSum{o.clean, o.eta, o.x_adv});
    o.gradient();
    each(o.device, n, kernels::FgsmStep{o.clean, o.dx, o.eta, static_cast<float>(alpha_), static_cast<float>(eps_)});
    each(o.device, n, kernels::ClampSum{o.clean, o.eta, o.x_adv});
  }
  [[nodiscard]] bool prefers_batch_statistics() const override { return true; }
  [[nodiscard]] int gradient_evaluations() const override { return 1; }
  [[nodiscard]] double alpha() const override { return alpha_; }

 private:
  double eps_, alpha_;
};

}  // namespace

std::unique_ptr<Attack> make_fgsm(const AttackOptions& options) { return std::make_unique<Fgsm>(options); }

}  // namespace dat
