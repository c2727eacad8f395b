#include "dat/aggregator.hpp"

namespace dat {

std::unique_ptr<Aggregator> make_mean(Backend&, const Parameters&, const AggregatorOptions&);

namespace {

using Make = std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&);

struct Member {
  const char* name;
  Make* make;
  Repeats repeats = Repeats::at_equal_ranks;
};
constexpr Member kMembers[] = {{"mean", make_mean, Repeats::at_any_ranks}};

}  // namespace

const Registry<Make>& aggregators() {
  static const Registry<Make> registry("aggregator", [] {
    std::map<std::string, std::function<Make>> all;
    for (const Member& member : kMembers) all[member.name] = member.make;
    return all;
  }());
  return registry;
}

Repeats repeats(const std::string& aggregator) {
  (void)aggregators().at(aggregator);
  for (const Member& member : kMembers)
    if (aggregator == member.name) return member.repeats;
  return Repeats::at_equal_ranks;
}

}  // namespace dat
