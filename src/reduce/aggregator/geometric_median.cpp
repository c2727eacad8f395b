#include <algorithm>

#include "reduce/aggregator/iterate.hpp"

namespace dat {

namespace {

/// The geometric median, where sum_i w_i |x_i - v| is least, by Weiszfeld's iteration
///   v <- (sum_i (w_i / d_i) x_i) / (sum_i w_i / d_i),  d_i = |x_i - v|
/// from the median of each coordinate on. Gradients that v is at are left out of the sums, and the step is shortened by
/// w / r, w being their weights and r = |sum_i w_i (x_i - v) / d_i|, so that it goes down from there, or stays (Vardi
/// and Zhang, PNAS 2000). It is at those whose distance is at most kEnough of the median distance. The end is a point
/// that stays, r of at most kEnough of all weights, or so many iterations.
class GeometricMedian final : public Robust {
 public:
  GeometricMedian(Backend& backend, const AggregatorOptions& options)
      : Robust(backend, options, true), v_(options.ranks) {
    distances_.reserve(static_cast<std::size_t>(options.ranks));
  }

 private:
  static constexpr double kEnough = 1e-6;

  void make() override {
    v_.begin(products_around_median(), n());
    for (int iteration = 0; iteration < options().settings.aggregator_iterations && improve(); ++iteration) continue;
    combine(v_.coefficients(), v_.of_start());
  }

  /// Returns whether to continue.
  [[nodiscard]] bool improve() {
    v_.measure();
    distances_ = v_.distances();
    const auto middle = distances_.begin() + n() / 2;
    std::nth_element(distances_.begin(), middle, distances_.end());
    const double at = kEnough * *middle;
    double total = 0, inverse = 0, here = 0;
    for (int i = 0; i < n(); ++i) {
      total += weight(i);
      if (v_.distance(i) > at)
        inverse += weight(i) / v_.distance(i);
      else
        here += weight(i);
    }
    for (int i = 0; i < n(); ++i)
      v_.step(i) = (v_.distance(i) > at ? weight(i) / v_.distance(i) / inverse : 0) - v_.coefficient(i);
    const double pull = v_.step_length() * inverse;
    const bool goes_down = pull > std::max(here, kEnough * total);
    if (goes_down) v_.move(1 - here / pull);
    return goes_down;
  }

  Iterate v_;
  std::vector<double> distances_;
};

}  // namespace

std::unique_ptr<Aggregator> make_geometric_median(Backend& backend, const Parameters&,
                                                  const AggregatorOptions& options) {
  return std::make_unique<GeometricMedian>(backend, options);
}

}  // namespace dat
