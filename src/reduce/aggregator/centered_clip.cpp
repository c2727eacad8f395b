#include <algorithm>
#include <limits>
#include <numeric>

#include "reduce/aggregator/iterate.hpp"

namespace dat {

namespace {

/// CenteredClip (Karimireddy, He, Jaggi, ICML 2021; as BTARD iterates it): from v0 on, the median of each coordinate,
///   v <- v + (1 / sum w) sum_i w_i (x_i - v) min(1, tau / |x_i - v|)
/// until a step is no longer than kClipAtRest, or for so many iterations. The end is the one v where the clipped
/// differences cancel out. Without a tau, it is clip_length() at each v: a step takes no two points further apart than
/// 2 C / sum w times their distance, C < sum w / 2 being the weight of what is clipped, so there is one such v, too.
class CenteredClip final : public Robust {
 public:
  CenteredClip(Backend& backend, const AggregatorOptions& options)
      : Robust(backend, options, true), v_(options.ranks) {}
  [[nodiscard]] bool by_parts() const override { return !options().settings.aggregator_mixing; }
  [[nodiscard]] bool unfinished() const override { return unfinished_; }

 private:
  void make() override {
    v_.begin(products_around_median(), n());
    const double total = std::accumulate(weights().begin(), weights().end(), 0.0);
    unfinished_ = true;
    for (int iteration = 0; iteration < options().settings.aggregator_iterations && unfinished_; ++iteration) {
      v_.measure();
      const double tau = options().settings.aggregator_tau > 0 ? options().settings.aggregator_tau
                                                               : clip_length(v_.distances(), weights());
      double all = 0;
      for (int i = 0; i < n(); ++i) {
        v_.step(i) = weight(i) / total * std::min(1.0, tau / v_.distance(i));
        all += v_.step(i);
      }
      for (int i = 0; i < n(); ++i) v_.step(i) -= all * v_.coefficient(i);
      v_.move(1);
      unfinished_ = v_.step_length() > kClipAtRest;
    }
    combine(v_.coefficients(), v_.of_start());
  }

  Iterate v_;
  bool unfinished_ = false;
};

}  // namespace

double clip_length(std::span<const double> distances, std::span<const double> weights) {
  double total = 0, shortest = std::numeric_limits<double>::infinity();
  int ranks = 0;
  for (const double weight : weights) {
    total += weight;
    ranks += weight > 0 ? 1 : 0;
  }
  for (const double distance : distances) {
    double within = 0;
    int ranks_within = 0;
    for (std::size_t i = 0; i < distances.size(); ++i) {
      if (!(weights[i] > 0 && distances[i] <= distance)) continue;
      within += weights[i];
      ++ranks_within;
    }
    if (2 * within > total && 2 * ranks_within > ranks) shortest = std::min(shortest, distance);
  }
  return shortest;
}

std::unique_ptr<Aggregator> make_centered_clip(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<CenteredClip>(backend, options);
}

}  // namespace dat
