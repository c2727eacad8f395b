#include "dat/aggregator.hpp"

namespace dat {

std::unique_ptr<Aggregator> make_mean(Backend&, const Parameters&, const AggregatorOptions&);

const Registry<std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&)>& aggregators() {
  static const Registry<std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&)> registry(
      "aggregator", {{"mean", make_mean}});
  return registry;
}

}  // namespace dat
