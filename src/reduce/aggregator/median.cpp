#include "reduce/aggregator/robust.hpp"

namespace dat {

namespace {

/// The median of each coordinate; of two middle values, the lower one.
class Median final : public Robust {
 public:
  Median(Backend& backend, const AggregatorOptions& options) : Robust(backend, options, false) {}
  [[nodiscard]] bool by_parts() const override { return !options().settings.aggregator_mixing; }

 private:
  void make() override { lower_median(); }
};

}  // namespace

std::unique_ptr<Aggregator> make_median(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<Median>(backend, options);
}

}  // namespace dat
