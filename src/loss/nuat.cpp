#include "consistency.hpp"
#include "loss/agreement.hpp"

namespace dat {

namespace {

/// NuAT: the nuclear norm of the difference of clean and attacked logits, a matrix [n, classes] of the images of a
/// micro-batch, whose norms are added up (Sriramanan, Addepalli, Baburaj, Venkatesh Babu, "Towards Efficient and
/// Effective Adversarial Training", NeurIPS 2021; repository val-iisc/NuAT, NuAT_cifar10.py, where a matrix is of all
/// 64 images of a step, and the weight grows up to 4.5; 4 in NuAT_WA_cifar10.py).
class Nuat final : public Agreement {
 public:
  using Agreement::Agreement;

  [[nodiscard]] std::int64_t scratch(int classes) const override { return 3 * std::int64_t{classes} * classes; }

 protected:
  void term(const Logits& attacked, const Logits& clean, float weight) const override {
    const std::int64_t squares = std::int64_t{attacked.classes} * attacked.classes;
    double *const gram = attacked.scratch, *const root = root_of(attacked);
    each(attacked.device, squares,
         kernels::DifferenceGram{attacked.values, clean.values, gram, attacked.n, attacked.classes});
    each(attacked.device, 1, kernels::InverseRoot{gram, gram + squares, root, attacked.classes});
    each(attacked.device, attacked.n,
         kernels::NuclearNorm{attacked.values, clean.values, attacked.labels, attacked.loss, attacked.correct,
                              attacked.gradient, attacked.classes, weight, root});
  }
  void add_gradient_of_clean(const Logits& clean, const Logits& attacked, float weight) const override {
    each(clean.device, clean.n,
         kernels::NuclearNorm{clean.values, attacked.values, clean.labels, nullptr, nullptr, clean.gradient,
                              clean.classes, weight, root_of(attacked)});
  }

 private:
  [[nodiscard]] static double* root_of(const Logits& logits) {
    return logits.scratch + 2 * std::int64_t{logits.classes} * logits.classes;
  }
};

}  // namespace

std::unique_ptr<Loss> make_nuat(const LossOptions& options) { return std::make_unique<Nuat>(options); }

}  // namespace dat
