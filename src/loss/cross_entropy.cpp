#include "loss.hpp"
#include "loss/terms.hpp"

namespace dat {

void smoothed_cross_entropy(const Logits& logits, float scale, float smoothing) {
  each(logits.device, logits.n,
       kernels::SoftmaxCrossEntropy{logits.values, logits.labels, logits.loss, logits.correct, logits.gradient,
                                    logits.classes, scale, smoothing});
}

void cross_entropy(const Logits& logits, float scale) { smoothed_cross_entropy(logits, scale, 0.0F); }

namespace {

/// Cross-entropy on the attacked images, plus lambda times that on the clean ones (DAT: Zhang et al., UAI 2022, with
/// lambda 1; Madry et al., ICLR 2018, with 0). An image without label has KL(p||q) of its clean and its attacked
/// prediction, as in TRADES, in place of the first, and none of the second: DAT's objective, whose maximised loss is
/// that divergence there.
class CrossEntropy final : public Loss {
 public:
  explicit CrossEntropy(const LossOptions& options)
      : lambda_(static_cast<float>(options.lambda)),
        smoothing_(static_cast<float>(options.smoothing)),
        unlabelled_(options.unlabelled) {}

  [[nodiscard]] std::vector<Images> passes() const override {
    if (lambda_ > 0) return {Images::attacked, Images::clean};
    return {Images::attacked};
  }
  [[nodiscard]] Others looks_at() const override { return unlabelled_ ? Others::all : Others::none; }
  [[nodiscard]] bool takes_unlabelled() const override { return lambda_ > 0; }
  [[nodiscard]] AttackGoal goal() const override {
    if (!unlabelled_) return {};
    return {.loss = cross_entropy_or_divergence, .reference = true};
  }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    const float share = 1.0F / static_cast<float>(batch);
    smoothed_cross_entropy(logits[k], (k == 0 ? 1.0F : lambda_) / static_cast<float>(batch), smoothing_);
    if (!unlabelled_) return;
    if (k == 0)
      kl_of_attacked(logits[0], logits[1].values, share, Which::unlabelled);
    else
      add_kl_of_clean(logits[1], logits[0], share, Which::unlabelled);
  }

 private:
  float lambda_, smoothing_;
  bool unlabelled_;
};

}  // namespace

std::unique_ptr<Loss> make_cross_entropy(const LossOptions& options) { return std::make_unique<CrossEntropy>(options); }

}  // namespace dat
