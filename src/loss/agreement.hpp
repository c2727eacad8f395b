#pragma once

#include "loss/terms.hpp"

namespace dat {

/// Cross-entropy on the clean images, plus beta times a term by which clean and attacked prediction are to agree.
/// Gradients go through both predictions; detached, the clean one is a constant in the term. It is that of the clean
/// pass, which then comes first, so that the term costs no pass.
class Agreement : public Loss {
 public:
  explicit Agreement(const LossOptions& options)
      : beta_(options.beta), smoothing_(static_cast<float>(options.smoothing)), detached_(options.detach) {}

  [[nodiscard]] std::vector<Images> passes() const final {
    if (detached_) return {Images::clean, Images::attacked};
    return {Images::attacked, Images::clean};
  }
  [[nodiscard]] Others looks_at() const final { return detached_ ? Others::earlier : Others::all; }
  /// The published codes call the network on the clean, the attacked and the clean images again.
  [[nodiscard]] std::vector<int> entering() const final {
    if (detached_) return {0, 1, 0};
    return {1, 0, 1};
  }
  [[nodiscard]] double beta() const final { return beta_; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const final {
    const float share = 1.0F / static_cast<float>(batch), weight = static_cast<float>(beta_) * share;
    const Logits &attacked = logits[detached_ ? 1 : 0], &clean = logits[detached_ ? 0 : 1];
    if (&logits[k] == &attacked) return term(attacked, clean, weight);
    smoothed_cross_entropy(clean, share, smoothing_);
    if (!detached_) add_gradient_of_clean(clean, attacked, weight);
  }

 protected:
  /// Leaves the term's losses, and weight times its gradient by the attacked logits.
  virtual void term(const Logits& attacked, const Logits& clean, float weight) const = 0;
  /// Adds weight times the term's gradient by the clean logits. After term(), of the same logits.
  virtual void add_gradient_of_clean(const Logits& clean, const Logits& attacked, float weight) const = 0;

 private:
  double beta_;
  float smoothing_;
  bool detached_;
};

}  // namespace dat
