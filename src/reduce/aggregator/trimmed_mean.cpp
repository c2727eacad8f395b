#include "reduce/aggregator/robust.hpp"

namespace dat {

namespace {

/// The mean of each coordinate without its f lowest and its f highest values (Yin et al., ICML 2018).
class TrimmedMean final : public Robust {
 public:
  TrimmedMean(Backend& backend, const AggregatorOptions& options) : Robust(backend, options, false) {}
  [[nodiscard]] bool by_parts() const override { return !options().settings.aggregator_mixing; }

 private:
  void make() override { order(faults(), n() - 1 - faults()); }
};

}  // namespace

std::unique_ptr<Aggregator> make_trimmed_mean(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<TrimmedMean>(backend, options);
}

}  // namespace dat
