#include "dat/loss.hpp"
#include "loss.hpp"

namespace dat {

void cross_entropy(const Logits& logits, float scale) {
  each(logits.device, logits.n,
       kernels::SoftmaxCrossEntropy{logits.values, logits.labels, logits.loss, logits.correct, logits.gradient,
                                    logits.classes, scale});
}

namespace {

/// Cross-entropy on the attacked images, plus lambda times that on the clean ones (DAT: Zhang et al., UAI 2022, with
/// lambda 1; Madry et al., ICLR 2018, with 0).
class CrossEntropy final : public Loss {
 public:
  explicit CrossEntropy(const LossOptions& options) : lambda_(static_cast<float>(options.lambda)) {}

  [[nodiscard]] std::vector<Images> passes() const override {
    if (lambda_ > 0) return {Images::attacked, Images::clean};
    return {Images::attacked};
  }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    cross_entropy(logits[k], (k == 0 ? 1.0F : lambda_) / static_cast<float>(batch));
  }

 private:
  float lambda_;
};

}  // namespace

std::unique_ptr<Loss> make_cross_entropy(const LossOptions& options) { return std::make_unique<CrossEntropy>(options); }

}  // namespace dat
