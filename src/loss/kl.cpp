#include "loss.hpp"
#include "loss/terms.hpp"

namespace dat {

void kl_of_attacked(const Logits& attacked, const float* clean, float scale, Which which) {
  each(attacked.device, attacked.n,
       kernels::KlDivergence{attacked.values, clean, attacked.labels, attacked.loss, attacked.correct,
                             attacked.gradient, attacked.classes, scale, which == Which::unlabelled});
}

void kl_divergence(const Logits& logits, float scale) { kl_of_attacked(logits, logits.reference, scale, Which::all); }

void cross_entropy_or_divergence(const Logits& logits, float scale) {
  cross_entropy(logits, scale);
  kl_of_attacked(logits, logits.reference, scale, Which::unlabelled);
}

void add_kl_of_clean(const Logits& clean, const Logits& attacked, float scale, Which which) {
  each(clean.device, clean.n,
       kernels::KlReferenceGradient{attacked.values, clean.values, clean.labels, clean.gradient, clean.classes, scale,
                                    which == Which::unlabelled});
}

namespace {

/// Cross-entropy on the clean images, plus beta times KL(p||q) where the clean predictions p are soft labels: no
/// gradient goes through them in the divergence (the form of virtual adversarial training: Miyato et al., "Virtual
/// Adversarial Training: A Regularization Method for Supervised and Semi-Supervised Learning").
class Kl final : public Loss {
 public:
  explicit Kl(const LossOptions& options) : beta_(options.beta), smoothing_(static_cast<float>(options.smoothing)) {}

  [[nodiscard]] std::vector<Images> passes() const override { return {Images::attacked, Images::clean}; }
  [[nodiscard]] Others looks_at() const override { return Others::all; }
  [[nodiscard]] AttackGoal goal() const override {
    return {.loss = kl_divergence, .reference = true, .spread = kNearStart};
  }
  [[nodiscard]] bool takes_unlabelled() const override { return true; }
  [[nodiscard]] double beta() const override { return beta_; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    const float share = 1.0F / static_cast<float>(batch);
    if (k == 0) return kl_of_attacked(logits[0], logits[1].values, static_cast<float>(beta_) * share, Which::all);
    smoothed_cross_entropy(logits[1], share, smoothing_);
  }

 private:
  double beta_;
  float smoothing_;
};

}  // namespace

std::unique_ptr<Loss> make_kl(const LossOptions& options) { return std::make_unique<Kl>(options); }

}  // namespace dat
