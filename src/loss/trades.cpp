#include "loss/terms.hpp"

namespace dat {

namespace {

/// TRADES: cross-entropy on the clean images, plus beta times KL(p||q) of the clean and the attacked predictions, with
/// gradients through both (Zhang et al., "Theoretically Principled Trade-off between Robustness and Accuracy", ICML
/// 2019; repository yaodongyu/TRADES, trades.py). The attack climbs the divergence, from the image's neighbourhood.
class Trades final : public Loss {
 public:
  explicit Trades(const LossOptions& options)
      : beta_(options.beta), smoothing_(static_cast<float>(options.smoothing)) {}

  [[nodiscard]] std::vector<Images> passes() const override { return {Images::attacked, Images::clean}; }
  [[nodiscard]] Others looks_at() const override { return Others::all; }
  /// The published code calls the network on the clean, the attacked and the clean images again.
  [[nodiscard]] std::vector<int> entering() const override { return {1, 0, 1}; }
  [[nodiscard]] AttackGoal goal() const override {
    return {.loss = kl_divergence, .reference = true, .spread = kNearStart};
  }
  [[nodiscard]] bool takes_unlabelled() const override { return true; }
  [[nodiscard]] double beta() const override { return beta_; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    const Logits &attacked = logits[0], &clean = logits[1];
    const float share = 1.0F / static_cast<float>(batch);
    if (k == 0) return kl_of_attacked(attacked, clean, static_cast<float>(beta_) * share, Which::all);
    smoothed_cross_entropy(clean, share, smoothing_);
    add_kl_of_clean(clean, attacked, static_cast<float>(beta_) * share, Which::all);
  }

 private:
  double beta_;
  float smoothing_;
};

}  // namespace

std::unique_ptr<Loss> make_trades(const LossOptions& options) { return std::make_unique<Trades>(options); }

}  // namespace dat
