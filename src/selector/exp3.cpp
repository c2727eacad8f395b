#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "budget.hpp"
#include "dat/selector.hpp"

namespace dat {

namespace {

/// Quantities that the losses of one draw share: maxima over the drawn layers, with g the norm of a layer's gradient
/// and pi = p / probability_of_any(p) the probability with which it was drawn.
struct Draw {
  double p_min = 0;
  double largest_norm = 0;  ///< L: of g, over all draws so far
  double largest_x = 0;     ///< largest x = (g/pi)^2/pi
};

/// A bandit loss l. `gain` is -l/pi: what, times the rate, is added to the logarithm of a drawn layer's weight.
struct BanditLoss {
  const char* name;
  double rate;  ///< the default
  double (*gain)(double g, double pi, const Draw& draw);
};

constexpr double square(double x) { return x * x; }

/// JointSpar: Liu and Mozafari, "Communication-efficient Distributed Learning for Large Batch Optimization", ICML 2022.
/// The weights w = p*exp(-rate*l/pi) of the drawn layers are projected. Both losses descend on the variance of the
/// sparsified gradient, sum g^2/pi, whose derivative is -(g/pi)^2 and whose least value is at p = clip(c*g, p_min, 1):
///   paper     l = (L/p_min)^2 - (g/pi)^2
///   selfnorm  l/pi = -x / max over the drawn layers of x
constexpr BanditLoss kBanditLosses[] = {
    {"paper", 1e-5,
     [](double g, double pi, const Draw& of) { return (square(g / pi) - square(of.largest_norm / of.p_min)) / pi; }},
    {"selfnorm", 0.1, [](double g, double pi, const Draw& of) { return square(g / pi) / pi / of.largest_x; }},
};

const BanditLoss& bandit_loss_from(const std::string& name) {
  for (const BanditLoss& loss : kBanditLosses)
    if (name == loss.name) return loss;
  fail(ExitCode::usage, "unknown bandit loss '", name, fmt::format("'; known: {}", fmt::join(bandit_losses(), ", ")));
}

/// A layer that was not drawn, or whose norm is zero or not finite (also: its square), keeps w = p.
class Exp3Selector final : public LayerSelector {
 public:
  explicit Exp3Selector(const SelectorOptions& options)
      : options_(options), loss_(bandit_loss_from(options.bandit_loss)) {
    check_budget(options);
    rate_ = options.bandit_rate > 0 ? options.bandit_rate : loss_.rate;
    const auto layers = static_cast<std::size_t>(options.layers);
    log_w_.resize(layers);
    scratch_.reserve(2 * layers);
    p_.assign(layers, equal_probability(options));
  }

  void learn(const ActiveSet& active, const std::vector<double>& norms) override {
    const auto used = [&](std::size_t d) {
      const double highest = norms[d] / options_.p_min;
      return active.scale[d] != 0.0F && norms[d] * norms[d] > 0 && std::isfinite(highest * highest / options_.p_min);
    };
    const double any_layer = probability_of_any(p_);
    const auto pi = [&](std::size_t d) { return p_[d] / any_layer; };
    Draw draw{.p_min = options_.p_min};
    for (std::size_t d = 0; d < p_.size(); ++d)
      if (used(d)) {
        largest_norm_ = std::max(largest_norm_, norms[d]);
        draw.largest_x = std::max(draw.largest_x, square(norms[d] / pi(d)) / pi(d));
      }
    draw.largest_norm = largest_norm_;
    for (std::size_t d = 0; d < p_.size(); ++d) {
      log_w_[d] = std::log(p_[d]);
      if (used(d)) log_w_[d] += rate_ * loss_.gain(norms[d], pi(d), draw);
    }
    project_kl(log_w_, options_.costs, options_.budget, options_.p_min, p_, scratch_);
  }

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

  [[nodiscard]] std::vector<double> state() const override {
    std::vector<double> all = p_;
    all.push_back(largest_norm_);
    return all;
  }

  void restore(const std::vector<double>& state) override {
    require_fitting(state);
    std::copy_n(state.begin(), p_.size(), p_.begin());
    largest_norm_ = state.back();
  }

 private:
  SelectorOptions options_;
  const BanditLoss& loss_;
  double rate_;
  double largest_norm_ = 0;  // L
  std::vector<double> p_, log_w_, scratch_;
};

}  // namespace

std::vector<std::string> bandit_losses() {
  std::vector<std::string> all;
  for (const BanditLoss& loss : kBanditLosses) all.emplace_back(loss.name);
  return all;
}

double default_bandit_rate(const std::string& bandit_loss) { return bandit_loss_from(bandit_loss).rate; }

std::unique_ptr<LayerSelector> make_exp3_selector(const SelectorOptions& options) {
  return std::make_unique<Exp3Selector>(options);
}

}  // namespace dat
