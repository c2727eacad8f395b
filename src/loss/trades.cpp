#include "loss/agreement.hpp"

namespace dat {

namespace {

/// TRADES: cross-entropy on the clean images, plus beta times KL(p||q) of the clean and the attacked predictions, with
/// gradients through both (Zhang et al., "Theoretically Principled Trade-off between Robustness and Accuracy", ICML
/// 2019; repository yaodongyu/TRADES, trades.py). The attack climbs the divergence, from the image's neighbourhood.
class Trades final : public Agreement {
 public:
  explicit Trades(const LossOptions& options) : Agreement({.beta = options.beta, .smoothing = options.smoothing}) {}

  [[nodiscard]] AttackGoal goal() const override {
    return {.loss = kl_divergence, .reference = true, .spread = kNearStart};
  }
  [[nodiscard]] bool takes_unlabelled() const override { return true; }

 protected:
  void term(const Logits& attacked, const Logits& clean, float weight) const override {
    kl_of_attacked(attacked, clean.values, weight, Which::all);
  }
  void add_gradient_of_clean(const Logits& clean, const Logits& attacked, float weight) const override {
    add_kl_of_clean(clean, attacked, weight, Which::all);
  }
};

}  // namespace

std::unique_ptr<Loss> make_trades(const LossOptions& options) { return std::make_unique<Trades>(options); }

}  // namespace dat
