#include <cmath>

#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// Relocated orthogonal perturbation, against aggregators that start from what they found before (Ozfatura, Ozfatura,
/// Kupcu, Gunduz, arXiv 2208.09894), as read in the public code, with its defaults: where the last result is, and from
/// there a step across. Across: (1, 1, ...) without its part along the reference, which is the last result, a tenth of
/// it replaced by the mean of the honest. Its default angle to the reference is a right one, which turns it no more.
/// The step's length is deviations_allowed(), whatever the gradients' norm.
class RelocatedPerturbation final : public Cheat {
 public:
  explicit RelocatedPerturbation(const CheatOptions& options)
      : length_(deviations_allowed(options.ranks, options.attackers)) {}

  [[nodiscard]] Sees sees() const override { return Sees::all; }
  void gradient(const CheatStep& step) override {
    const auto mean = [&](std::int64_t i) { return double{step.mean[i]}; };
    const auto one = [](std::int64_t) { return 1.0; };
    const auto last = [&](std::int64_t i) { return double{step.result != nullptr ? step.result[i] : step.mean[i]}; };
    const auto along = [&](std::int64_t i) { return kLambda * last(i) + (1 - kLambda) * mean(i); };
    const double norm = std::sqrt(product(step.tensors, along, along));
    // A direction exists only where the last result is known and finite.
    if (!std::isfinite(norm) || norm == 0) return;
    const double part = product(step.tensors, one, along) / (norm * norm);
    const auto across = [&](std::int64_t i) { return 1 - part * along(i); };
    const double factor = length_ / std::sqrt(product(step.tensors, across, across));
    for_each_element(step.tensors,
                     [&](std::int64_t i) { step.own[i] = static_cast<float>(last(i) + factor * across(i)); });
  }

 private:
  static constexpr double kLambda = 0.9;
  double length_;
};

}  // namespace

std::unique_ptr<Cheat> make_history(const CheatOptions& options) {
  return std::make_unique<RelocatedPerturbation>(options);
}

}  // namespace dat
