#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

/// Fields are called like the options of the command line, whose structs inherit them.
struct SelectorSettings {
  double budget = 0;                      ///< B: the mean of the cost of the active layers; p_min*D <= B <= D
  double p_min = 0.1;                     ///< lowest inclusion probability
  std::string bandit_loss = "selfnorm";   ///< exp3: one of bandit_losses()
  double bandit_rate = 0;                 ///< exp3: alpha_p; 0: the default of the loss
  double freeze_t0 = 0.8;                 ///< freezeout: where in the run the first layer freezes, before the power
  std::string freeze_schedule = "cubic";  ///< freezeout: linear | squared | cubic
  std::string freeze_lr = "scaled";       ///< freezeout: scaled | unscaled | constant
  double freeze_percentile = 50;          ///< autofreeze: the percentile of the changes that is the bar, in %

  friend bool operator==(const SelectorSettings&, const SelectorSettings&) = default;
};

struct SelectorOptions : SelectorSettings {
  int layers = 0;  ///< D
  /// [layers] cost of each layer, as costs_of_mean_one returns them; empty: 1 each.
  std::vector<double> costs{};
  std::int64_t steps = 0;  ///< steps of the whole run
};

/// Costs in units of their mean, so that a budget of 40 of 54 layers is the share 40/54 of what all layers cost
/// together. A layer that costs next to nothing counts with 1e-6 of the mean. costs [layers], in any unit.
/// Error(usage): a cost is negative or not finite, or all are zero.
[[nodiscard]] std::vector<double> costs_of_mean_one(std::vector<double> costs);

/// q = 1 - prod (1 - p_d): the probability that independent draws with p take any layer.
[[nodiscard]] double probability_of_any(const std::vector<double>& p);

/// Draws the active layers: each with its probability, independently; a draw without any layer is repeated, since the
/// step would be lost. So layer d is drawn with probability p_d / q, q = probability_of_any(p) > 0, and scale_d = q /
/// p_d has the mean 1. A layer with p = 0 is never drawn. A pure function, which any rank can repeat. p [layers] in [0,
/// 1], at least one of them above 0. Draws of different ranks are independent; a draw that is for all ranks is rank
/// 0's. Allocates nothing where active.scale has [layers] already.
void draw_layers(std::uint64_t seed, std::uint64_t draw_number, const std::vector<double>& p, ActiveSet& active,
                 int rank = 0);

/// Says with which probabilities layers are drawn, and learns from their gradient norms: for all ranks, or for its own
/// rank alone. The whole state is in `state()`, a flat vector of doubles, so that a checkpoint can restore it bit for
/// bit.
class LayerSelector {
 public:
  virtual ~LayerSelector() = default;

  /// Step number `step` of the run comes next, from 0. Called before every step, on every rank. Allocates nothing.
  virtual void begin(std::int64_t /*step*/) {}

  /// The factor of each layer's learning rate [layers] in the step that has begun; null: all rates stay as they are. 0:
  /// the layer stands still. The factors follow from the number of the step and the options, so they are equal on every
  /// rank.
  [[nodiscard]] virtual const std::vector<double>* rates() const { return nullptr; }

  /// norms[d] = ||g_d||_2 of the raw gradient (not divided by p) of each active layer d; the norms of other layers are
  /// ignored. The gradient is the mean over the ranks, or this rank's own where each has a selector. Allocates nothing.
  virtual void learn(const ActiveSet& /*active*/, const std::vector<double>& /*norms*/) {}

  /// p of each layer [layers], for draw_layers.
  [[nodiscard]] virtual const std::vector<double>& probabilities() const = 0;

  /// Empty: all follows from the options and the step.
  [[nodiscard]] virtual std::vector<double> state() const { return {}; }
  /// Takes up what state() has given. Error(checkpoint): the size does not fit.
  virtual void restore(const std::vector<double>& state) { require_fitting(state); }

 protected:
  void require_fitting(const std::vector<double>& other) const {
    require(other.size() == state().size(), ExitCode::checkpoint, "the checkpoint holds ", other.size(),
            " numbers of selector state, but the selector of these ", probabilities().size(), " layers has ",
            state().size(), ": resume with the --selector, --granularity and --freeze of the first run");
  }
};

[[nodiscard]] const Registry<std::unique_ptr<LayerSelector>(const SelectorOptions&)>& selectors();

/// The selector `of` of all layers but the first `frozen`, which have the probability and the rate 0 in the first
/// `steps` steps, and 1 after these. `frozen` = 0: that selector itself.
[[nodiscard]] std::unique_ptr<LayerSelector> behind_frozen(std::unique_ptr<LayerSelector> of, int frozen, int layers,
                                                           std::int64_t steps);

/// The names that bandit_loss may have.
[[nodiscard]] std::vector<std::string> bandit_losses();

/// The rate that bandit_rate = 0 stands for. Error(usage): there is no such bandit loss.
[[nodiscard]] double default_bandit_rate(const std::string& bandit_loss);

/// The probabilities q_d = clip(c*w_d, p_min, 1) that meet the budget, sum cost_d*q_d = budget: c is the only unknown.
/// These q minimise sum a_d^2/q_d where w_d = a_d/sqrt(cost_d); with unit costs also D_KL(q || w). Exact, in the log
/// domain. log_w [D], costs [D] above 0 or empty (1 each) -> q [D]. p_min * sum cost <= budget <= sum cost, to
/// rounding. `scratch` [2D] makes the call free of allocation.
void clip_to_budget(const std::vector<double>& log_w, const std::vector<double>& costs, double budget, double p_min,
                    std::vector<double>& q, std::vector<double>& scratch);

/// min D_KL(q || w) over sum cost_d*q_d = budget, p_min <= q <= 1: q_d = clip(w_d*exp(-lambda*cost_d), p_min, 1), with
/// one lambda for all layers. (The derivative of sum q ln(q/w) - q + lambda*cost*q by q_d is ln(q_d/w_d) +
/// lambda*cost_d; this derivative vanishes where q_d is at no bound.) lambda is found by Newton's method between the
/// two neighbouring values at which a layer reaches a bound. Where all costs are equal, the result is clip_to_budget's,
/// bit for bit. Arguments as of clip_to_budget.
void project_kl(const std::vector<double>& log_w, const std::vector<double>& costs, double budget, double p_min,
                std::vector<double>& q, std::vector<double>& scratch);

}  // namespace dat
