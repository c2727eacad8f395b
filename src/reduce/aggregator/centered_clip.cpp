#include <algorithm>

#include "reduce/aggregator/iterate.hpp"

namespace dat {

namespace {

/// CenteredClip (Karimireddy, He, Jaggi, ICML 2021; as BTARD iterates it): from v0 on, the median of each coordinate,
///   v <- v + (1 / sum w) sum_i w_i (x_i - v) min(1, tau / |x_i - v|)
/// until a step is no longer than kClipAtRest, or for so many iterations. The end is the one v where the clipped
/// differences cancel out; without tau, the mean.
class CenteredClip final : public Robust {
 public:
  CenteredClip(Backend& backend, const AggregatorOptions& options)
      : Robust(backend, options, true), v_(options.ranks) {}
  [[nodiscard]] bool by_parts() const override { return !options().mixing; }
  [[nodiscard]] bool unfinished() const override { return unfinished_; }

 private:
  void make() override {
    v_.begin(products_around_median(), n());
    double total = 0;
    for (int i = 0; i < n(); ++i) total += weight(i);
    unfinished_ = true;
    for (int iteration = 0; iteration < options().iterations && unfinished_; ++iteration) {
      v_.measure();
      double all = 0;
      for (int i = 0; i < n(); ++i) {
        v_.step(i) = weight(i) / total * clip(v_.distance(i));
        all += v_.step(i);
      }
      for (int i = 0; i < n(); ++i) v_.step(i) -= all * v_.coefficient(i);
      v_.move(1);
      unfinished_ = v_.step_length() > kClipAtRest;
    }
    combine(v_.coefficients(), v_.of_start());
  }
  [[nodiscard]] double clip(double distance) const { return distance > options().tau ? options().tau / distance : 1; }

  Iterate v_;
  bool unfinished_ = false;
};

}  // namespace

std::unique_ptr<Aggregator> make_centered_clip(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<CenteredClip>(backend, options);
}

}  // namespace dat
