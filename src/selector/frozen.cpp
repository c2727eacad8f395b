#include <algorithm>
#include <utility>

#include "dat/selector.hpp"

namespace dat {

namespace {

/// Layers that stand still, before those of another selector.
class FrozenSelector final : public LayerSelector {
 public:
  FrozenSelector(std::unique_ptr<LayerSelector> of, int frozen, int layers, std::int64_t steps)
      : of_(std::move(of)), frozen_(frozen), steps_(steps), p_(static_cast<std::size_t>(layers)), rates_(p_) {
    inner_.scale.reserve(p_.size());
    inner_norms_.reserve(p_.size());
    begin(0);
  }

  void begin(std::int64_t step) override {
    of_->begin(step);
    still_ = step < steps_;
    take(of_->probabilities(), p_);
    if (const std::vector<double>* rates = of_->rates()) take(*rates, rates_);
  }

  [[nodiscard]] const std::vector<double>* rates() const override { return of_->rates() ? &rates_ : nullptr; }

  void learn(const ActiveSet& active, const std::vector<double>& norms) override {
    inner_.scale.assign(active.scale.begin() + frozen_, active.scale.end());
    inner_norms_.assign(norms.begin() + frozen_, norms.end());
    of_->learn(inner_, inner_norms_);
    take(of_->probabilities(), p_);
  }

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }
  [[nodiscard]] std::vector<double> state() const override { return of_->state(); }
  void restore(const std::vector<double>& state) override {
    of_->restore(state);
    take(of_->probabilities(), p_);
  }

 private:
  void take(const std::vector<double>& from, std::vector<double>& to) const {
    std::fill_n(to.begin(), frozen_, still_ ? 0.0 : 1.0);
    std::ranges::copy(from, to.begin() + frozen_);
  }

  std::unique_ptr<LayerSelector> of_;
  int frozen_;
  std::int64_t steps_;
  bool still_ = true;
  std::vector<double> p_, rates_;  ///< [layers]
  ActiveSet inner_;                ///< [layers - frozen], and their norms
  std::vector<double> inner_norms_;
};

}  // namespace

std::unique_ptr<LayerSelector> behind_frozen(std::unique_ptr<LayerSelector> of, int frozen, int layers,
                                             std::int64_t steps) {
  if (frozen == 0) return of;
  return std::make_unique<FrozenSelector>(std::move(of), frozen, layers, steps);
}

}  // namespace dat
