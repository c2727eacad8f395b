#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

struct SelectorOptions {
  int layers = 0;                        ///< D
  double budget = 0;                     ///< s: the mean number of active layers; p_min*D <= s <= D
  double p_min = 0.1;                    ///< lowest inclusion probability
  std::string bandit_loss = "selfnorm";  ///< of exp3: one of bandit_losses()
  double bandit_rate = 0;                ///< of exp3: alpha_p; 0 = the loss's own default
};

/// q = 1 - prod (1 - p_d): the probability that independent draws with p take any layer.
[[nodiscard]] double probability_of_any(const std::vector<double>& p);

/// Draws the active layers: each with its probability, independently; again where there is none, since the step would
/// be lost. So layer d is drawn with probability p_d / q, q = probability_of_any(p) > 0, and scale_d = q / p_d has the
/// mean 1. A pure function, which any rank can repeat. p [layers] in (0, 1]. Draws of different ranks are independent;
/// one that is for all ranks is rank 0's. Allocates nothing where active.scale has [layers] already.
void draw_layers(std::uint64_t seed, std::uint64_t draw_number, const std::vector<double>& p, ActiveSet& active,
                 int rank = 0);

/// Says with which probabilities layers are drawn, and learns from their gradient norms: for all ranks, or for its own
/// rank alone. The whole state is in `state()`, a flat vector of doubles, so that a checkpoint can restore it bit for
/// bit.
class LayerSelector {
 public:
  virtual ~LayerSelector() = default;

  /// norms[d] = ||g_d||_2 of the raw gradient (not divided by p) of each active layer d; others are ignored. The
  /// gradient is the mean over the ranks, or this rank's own where each has a selector.
  /// Allocates nothing.
  virtual void learn(const ActiveSet& active, const std::vector<double>& norms) = 0;

  /// p of each layer [layers], for draw_layers.
  [[nodiscard]] virtual const std::vector<double>& probabilities() const = 0;

  [[nodiscard]] virtual std::vector<double> state() const = 0;
  /// Error(checkpoint) where the size does not fit.
  virtual void restore(const std::vector<double>& state) = 0;
};

[[nodiscard]] const Registry<std::unique_ptr<LayerSelector>(const SelectorOptions&)>& selectors();

/// The names that bandit_loss may have.
[[nodiscard]] std::vector<std::string> bandit_losses();

/// What bandit_rate = 0 stands for. Error(usage): no such bandit loss.
[[nodiscard]] double default_bandit_rate(const std::string& bandit_loss);

/// min D_KL(q || w) over sum q = budget, p_min <= q <= 1: q_d = clip(c*w_d, p_min, 1). Exact, in the log domain.
/// log_w [D] -> q [D]. Error(usage) unless D*p_min <= budget <= D. `scratch` [2D] makes the call free of allocation.
void project_kl(const std::vector<double>& log_w, double budget, double p_min, std::vector<double>& q,
                std::vector<double>& scratch);

}  // namespace dat
