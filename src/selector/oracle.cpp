#include <algorithm>
#include <cmath>
#include <limits>

#include "budget.hpp"
#include "dat/selector.hpp"

namespace dat {

namespace {

/// The best fixed probabilities, p_d = clip(c*||g_d||/sqrt(cost_d), p_min, 1) with sum cost*p = budget: they minimise
/// the variance of the sparsified gradient, sum ||g_d||^2/p_d, which a bandit can only approach. Here they follow from
/// estimates, no bandit:
/// ||g_d||^2 is an exponential average over the draws of layer d, of which the newest weighs kNewest. The first norm of
/// a layer is its estimate as it is. A layer that has not been drawn yet counts with the largest of the estimates, so
/// that it is drawn soon; while there is none at all, all probabilities are equal. A norm whose square is not finite is
/// passed over.
class OracleSelector final : public LayerSelector {
 public:
  explicit OracleSelector(const SelectorOptions& options) : options_(options) {
    check_budget(options);
    const auto layers = static_cast<std::size_t>(options.layers);
    squares_.assign(layers, kUnknown);
    log_w_.resize(layers);
    scratch_.reserve(2 * layers);
    p_.assign(layers, equal_probability(options));
    half_log_cost_.resize(layers);
    for (std::size_t d = 0; d < options.costs.size(); ++d) half_log_cost_[d] = 0.5 * std::log(options.costs[d]);
  }

  void learn(const ActiveSet& active, const std::vector<double>& norms) override {
    for (std::size_t d = 0; d < p_.size(); ++d) {
      if (active.scale[d] == 0.0F) continue;
      const double square = norms[d] * norms[d];
      if (!std::isfinite(square)) continue;
      squares_[d] = squares_[d] == kUnknown ? square : (1 - kNewest) * squares_[d] + kNewest * square;
    }
    choose();
  }

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }
  [[nodiscard]] std::vector<double> state() const override { return squares_; }

  void restore(const std::vector<double>& state) override {
    require_fitting(state);
    squares_ = state;
    p_.assign(p_.size(), equal_probability(options_));
    choose();
  }

 private:
  static constexpr double kUnknown = -1, kNewest = 0.1;

  void choose() {
    const double largest = *std::ranges::max_element(squares_);
    if (largest == kUnknown) return;
    for (std::size_t d = 0; d < p_.size(); ++d) {
      const double square = squares_[d] == kUnknown ? largest : squares_[d];
      // Zero has no logarithm.
      log_w_[d] = 0.5 * std::log(std::max(square, std::numeric_limits<double>::min())) - half_log_cost_[d];
    }
    clip_to_budget(log_w_, options_.costs, options_.budget, options_.p_min, p_, scratch_);
  }

  SelectorOptions options_;
  std::vector<double> squares_;  ///< [layers] estimates of ||g||^2
  std::vector<double> half_log_cost_, p_, log_w_, scratch_;
};

}  // namespace

std::unique_ptr<LayerSelector> make_oracle_selector(const SelectorOptions& options) {
  return std::make_unique<OracleSelector>(options);
}

}  // namespace dat
