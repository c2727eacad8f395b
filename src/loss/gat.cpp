#include "consistency.hpp"
#include "loss/agreement.hpp"

namespace dat {

namespace {

/// GAT: the squared Euclidean distance of clean and attacked softmax, by 10 as in the published code (Sriramanan,
/// Addepalli, Baburaj, Venkatesh Babu, "Guided Adversarial Attack for Evaluating and Enhancing Adversarial Defenses",
/// NeurIPS 2020; repository val-iisc/GAMA-GAT, GAT_cifar10.py).
class Gat final : public Agreement {
 public:
  using Agreement::Agreement;

 protected:
  void term(const Logits& attacked, const Logits& clean, float weight) const override {
    each(attacked.device, attacked.n,
         kernels::SoftmaxDistance{attacked.values, clean.values, attacked.labels, attacked.loss, attacked.correct,
                                  attacked.gradient, attacked.classes, weight});
  }
  void add_gradient_of_clean(const Logits& clean, const Logits& attacked, float weight) const override {
    each(clean.device, clean.n,
         kernels::SoftmaxDistance{clean.values, attacked.values, clean.labels, nullptr, nullptr, clean.gradient,
                                  clean.classes, weight});
  }
};

}  // namespace

std::unique_ptr<Loss> make_gat(const LossOptions& options) { return std::make_unique<Gat>(options); }

}  // namespace dat
