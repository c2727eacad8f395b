#include <algorithm>
#include <cmath>

#include "dat/selector.hpp"

namespace dat {

namespace {

/// JointSpar: Liu and Mozafari, "Communication-efficient Distributed Learning for Large Batch Optimization", ICML 2022.
/// With g the norm of a drawn layer and pi = p / probability_of_any(p) the probability with which it was drawn, the
/// bandit losses l and the weights w = p*exp(-alpha*l/pi) are
///   paper      l = (L/p_min)^2 - (g/pi)^2, L the largest norm seen so far
///   shiftfree  l = -(g/pi)^2
///   minshift   l = max over the drawn layers of (g/pi)^2, minus (g/pi)^2
///   selfnorm   l/pi = -x / max over the drawn layers of x, x = (g/pi)^2/pi
/// A layer that was not drawn, or whose norm is zero or not finite (also: its square), keeps w = p. Then p is
/// projected.
enum class BanditLoss { paper, shiftfree, minshift, selfnorm };

struct BanditLossMember {
  const char* name;
  BanditLoss loss;
  double rate;
};
constexpr BanditLossMember kBanditLosses[] = {{"paper", BanditLoss::paper, 1e-5},
                                              {"shiftfree", BanditLoss::shiftfree, 1e-2},
                                              {"minshift", BanditLoss::minshift, 1e-3},
                                              {"selfnorm", BanditLoss::selfnorm, 0.1}};

const BanditLossMember& bandit_loss_from(const std::string& name) {
  std::string known;
  for (const auto& member : kBanditLosses) {
    if (name == member.name) return member;
    known += (known.empty() ? "" : ", ") + std::string(member.name);
  }
  fail(ExitCode::usage, "unknown bandit loss '", name, "'; known: ", known);
}

class Exp3Selector final : public LayerSelector {
 public:
  explicit Exp3Selector(const SelectorOptions& options) : options_(options) {
    const BanditLossMember& member = bandit_loss_from(options.bandit_loss);
    loss_ = member.loss;
    require(options.bandit_rate >= 0, ExitCode::usage, "the bandit rate ", options.bandit_rate, " is negative");
    rate_ = options.bandit_rate > 0 ? options.bandit_rate : member.rate;
    require(options.layers > 0, ExitCode::usage, "selector 'exp3' needs at least one layer");
    require(options.p_min > 0 && options.p_min <= 1, ExitCode::usage, "p_min = ", options.p_min, " is not in (0, 1]");
    require(options.budget <= options.layers, ExitCode::usage, "budget ", options.budget, " is more than the ",
            options.layers, " layers: lower it to at most ", options.layers);
    // The slack is for the rounding of the product.
    const double lowest = options.layers * options.p_min;
    require(options.budget >= lowest * (1 - 1e-12), ExitCode::usage, "budget ", options.budget, " is less than p_min ",
            options.p_min, " times ", options.layers, " layers: raise the budget to at least ", lowest,
            " or lower p_min to at most ", options.budget / options.layers);
    const auto layers = static_cast<std::size_t>(options.layers);
    log_w_.resize(layers);
    scratch_.reserve(2 * layers);
    p_.assign(layers, std::max(options.budget / options.layers, options.p_min));
  }

  void learn(const ActiveSet& active, const std::vector<double>& norms) override {
    const auto used = [&](std::size_t d) {
      const double highest = norms[d] / options_.p_min;
      return active.scale[d] != 0.0F && norms[d] * norms[d] > 0 && std::isfinite(highest * highest / options_.p_min);
    };
    const double any_layer = probability_of_any(p_);
    const auto pi = [&](std::size_t d) { return p_[d] / any_layer; };
    const auto square = [&](std::size_t d) { return norms[d] / pi(d) * (norms[d] / pi(d)); };
    double largest_square = 0;
    double largest_x = 0;
    for (std::size_t d = 0; d < p_.size(); ++d)
      if (used(d)) {
        largest_norm_ = std::max(largest_norm_, norms[d]);
        largest_square = std::max(largest_square, square(d));
        largest_x = std::max(largest_x, square(d) / pi(d));
      }
    const double unit = loss_ == BanditLoss::selfnorm ? largest_x : 1;
    const double shift = loss_ == BanditLoss::paper      ? std::pow(largest_norm_ / options_.p_min, 2)
                         : loss_ == BanditLoss::minshift ? largest_square
                                                         : 0;
    for (std::size_t d = 0; d < p_.size(); ++d) {
      log_w_[d] = std::log(p_[d]);
      if (used(d)) log_w_[d] += rate_ * ((square(d) - shift) / pi(d) / unit);
    }
    project_kl(log_w_, options_.budget, options_.p_min, p_, scratch_);
  }

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

  [[nodiscard]] std::vector<double> state() const override {
    std::vector<double> all = p_;
    all.push_back(largest_norm_);
    return all;
  }

  void restore(const std::vector<double>& state) override {
    require(state.size() == p_.size() + 1, ExitCode::checkpoint, "the checkpoint holds ", state.size(),
            " numbers of selector state, but selector 'exp3' with ", p_.size(), " layers has ", p_.size() + 1,
            ": resume with the selector and granularity of the first run");
    std::copy_n(state.begin(), p_.size(), p_.begin());
    largest_norm_ = state.back();
  }

 private:
  SelectorOptions options_;
  BanditLoss loss_;
  double rate_;
  double largest_norm_ = 0;  // L
  std::vector<double> p_, log_w_, scratch_;
};

}  // namespace

double default_bandit_rate(const std::string& bandit_loss) { return bandit_loss_from(bandit_loss).rate; }

std::unique_ptr<LayerSelector> make_exp3_selector(const SelectorOptions& options) {
  return std::make_unique<Exp3Selector>(options);
}

}  // namespace dat
