#include "dat/loss.hpp"
#include "loss.hpp"

namespace dat {

namespace {

/// MART: boosted cross-entropy on the attacked images, plus beta times the divergence of clean and attacked
/// predictions, weighted by how little the clean image is believed (kernels::Mart). Gradients go through all of it. The
/// attack climbs cross-entropy, from the image's neighbourhood.
class MartLoss final : public Loss {
 public:
  explicit MartLoss(const LossOptions& options) : beta_(options.beta) {}

  [[nodiscard]] std::vector<Images> passes() const override { return {Images::attacked, Images::clean}; }
  [[nodiscard]] Others looks_at() const override { return Others::all; }
  /// The published code calls the network on the clean, then on the attacked images.
  [[nodiscard]] std::vector<int> entering() const override { return {1, 0}; }
  [[nodiscard]] AttackGoal goal() const override { return {.spread = kNearStart}; }
  [[nodiscard]] double beta() const override { return beta_; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    const Logits &attacked = logits[0], &clean = logits[1];
    const float share = 1.0F / static_cast<float>(batch);
    if (k == 0)
      each(attacked.device, attacked.n,
           kernels::MartAttacked{attacked.values, clean.values, attacked.labels, attacked.loss, attacked.correct,
                                 attacked.gradient, attacked.classes, share, static_cast<float>(beta_)});
    else
      each(clean.device, clean.n,
           kernels::MartClean{clean.values, attacked.values, clean.labels, clean.loss, clean.correct, clean.gradient,
                              clean.classes, static_cast<float>(beta_) * share});
  }

 private:
  double beta_;
};

}  // namespace

std::unique_ptr<Loss> make_mart(const LossOptions& options) { return std::make_unique<MartLoss>(options); }

}  // namespace dat
