#include <cassert>
#include <cmath>
#include <numbers>

#include "dat/selector.hpp"

namespace dat {

namespace {

/// FreezeOut: Brock, Lim, Ritchie, Weston, 2017 (arXiv:1706.04983), as in the authors' code. Layer i of 0..L takes part
/// until the share phi_i of the run's steps is done, and then rests for good:
///   t_i = t_0 + (1 - t_0) i/L,  phi_i = t_i (linear), t_i^2 (squared), t_i^3 (cubic)
/// and its learning rate is annealed to zero until then (the paper's formula lacks the 1/2, as the authors say):
///   lr_i(j) = alpha_i/2 (1 + cos(pi j/(phi_i J))),  alpha_i = alpha/phi_i (scaled) or alpha (unscaled)
/// The last layer has phi = 1 and never rests. J are the run's own steps (the authors' code counts 1000 an epoch
/// whatever the batch), its warm-up included. alpha is what the schedule of the learning rate says: theirs is constant.
/// `constant` leaves the rates alone and freezes only.
class FreezeoutSelector final : public LayerSelector {
 public:
  explicit FreezeoutSelector(const SelectorOptions& options)
      : scaled_(options.freeze_lr == "scaled"), anneals_(options.freeze_lr != "constant") {
    assert(options.steps > 0);
    const int power = options.freeze_schedule == "cubic" ? 3 : options.freeze_schedule == "squared" ? 2 : 1;
    for (int i = 0; i < options.layers; ++i) {
      const double t =
          i + 1 < options.layers ? options.freeze_t0 + (1 - options.freeze_t0) * i / (options.layers - 1) : 1;
      phi_.push_back(std::pow(t, power));
      end_.push_back(phi_.back() * static_cast<double>(options.steps));
    }
    p_.resize(phi_.size());
    rates_.resize(phi_.size());
    begin(0);
  }

  void begin(std::int64_t step) override {
    const auto j = static_cast<double>(step);
    for (std::size_t i = 0; i < p_.size(); ++i) {
      p_[i] = j < end_[i] || i + 1 == p_.size() ? 1 : 0;
      const double annealed = 0.5 * (1 + std::cos(std::numbers::pi * (j / end_[i])));
      rates_[i] = p_[i] == 0 ? 0 : annealed / (scaled_ ? phi_[i] : 1);
    }
  }

  [[nodiscard]] const std::vector<double>* rates() const override { return anneals_ ? &rates_ : nullptr; }
  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

 private:
  bool scaled_, anneals_;
  std::vector<double> phi_, end_;  ///< [layers] share of the run; step from which it rests
  std::vector<double> p_, rates_;
};

}  // namespace

std::unique_ptr<LayerSelector> make_freezeout_selector(const SelectorOptions& options) {
  return std::make_unique<FreezeoutSelector>(options);
}

}  // namespace dat
