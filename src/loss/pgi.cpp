#include "consistency.hpp"
#include "loss/terms.hpp"

namespace dat {

namespace {

/// FGSM-PGI: cross-entropy on the attacked images, plus beta times the mean squared distance of their logits from those
/// of the images where the attack began (Jia et al., "Prior-Guided Adversarial Initialization for Fast Adversarial
/// Training", ECCV 2022; repository jiaxiaojunQAQ/FGSM-PGI, FGSM_MEP.py). Gradients go through both logits; detached,
/// those of the beginning are the attack's own.
class Pgi final : public Loss {
 public:
  explicit Pgi(const LossOptions& options)
      : beta_(options.beta), smoothing_(static_cast<float>(options.smoothing)), detached_(options.detach) {}

  /// Passes in the order in which the published code calls the network.
  [[nodiscard]] std::vector<Images> passes() const override {
    if (detached_) return {Images::attacked};
    return {Images::start, Images::attacked};
  }
  [[nodiscard]] Others looks_at() const override { return detached_ ? Others::none : Others::all; }
  [[nodiscard]] AttackGoal goal() const override { return {.kept = detached_ ? StartKept::logits : StartKept::images}; }
  [[nodiscard]] double beta() const override { return beta_; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    const float share = 1.0F / static_cast<float>(batch), weight = static_cast<float>(beta_) * share;
    const Logits& attacked = logits.back();
    const float* const start = detached_ ? attacked.reference : logits.front().values;
    if (k + 1 == logits.size()) {
      smoothed_cross_entropy(attacked, share, smoothing_);
      each(attacked.device, attacked.n,
           kernels::LogitDistance{attacked.values, start, attacked.labels, nullptr, nullptr, attacked.gradient,
                                  attacked.classes, weight});
    } else {
      const Logits& of = logits.front();
      each(of.device, of.n,
           kernels::LogitDistance{start, attacked.values, of.labels, of.loss, of.correct, of.gradient, of.classes,
                                  weight});
    }
  }

 private:
  double beta_;
  float smoothing_;
  bool detached_;
};

}  // namespace

std::unique_ptr<Loss> make_pgi(const LossOptions& options) { return std::make_unique<Pgi>(options); }

}  // namespace dat
