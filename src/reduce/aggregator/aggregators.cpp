#include <algorithm>

#include "dat/aggregator.hpp"
#include "dat/error.hpp"

namespace dat {

std::unique_ptr<Aggregator> make_mean(Backend&, const Parameters&, const AggregatorOptions&);
std::unique_ptr<Aggregator> make_median(Backend&, const Parameters&, const AggregatorOptions&);
std::unique_ptr<Aggregator> make_trimmed_mean(Backend&, const Parameters&, const AggregatorOptions&);
std::unique_ptr<Aggregator> make_geometric_median(Backend&, const Parameters&, const AggregatorOptions&);
std::unique_ptr<Aggregator> make_krum(Backend&, const Parameters&, const AggregatorOptions&);
std::unique_ptr<Aggregator> make_multi_krum(Backend&, const Parameters&, const AggregatorOptions&);
std::unique_ptr<Aggregator> make_centered_clip(Backend&, const Parameters&, const AggregatorOptions&);

namespace {

using Make = std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&);

struct Member {
  const char* name;
  Make* make;
  Repeats repeats = Repeats::at_equal_ranks;
  int beside = 1;  ///< number of ranks that it needs for f faults, less 2 f
  std::vector<Setting> settings{};
  const char* cites = "";  ///< Registry::Row::cites
};
constexpr const char* kKrum = "Blanchard et al. (Krum), NeurIPS 2017";
const Member kMembers[] = {
    {"mean", make_mean, Repeats::at_any_ranks},
    {"centered_clip",
     make_centered_clip,
     Repeats::at_equal_ranks,
     1,
     {{"aggregator:tau"}, {"aggregator:iterations"}, {"byzantine"}},
     "Karimireddy, He, Jaggi (CenteredClip), ICML 2021"},
    {"geometric_median", make_geometric_median, Repeats::at_equal_ranks, 1, {{"aggregator:iterations"}}},
    {"krum", make_krum, Repeats::at_equal_ranks, 3, {}, kKrum},
    {"median", make_median},
    {"multi_krum", make_multi_krum, Repeats::at_equal_ranks, 3, {}, kKrum},
    {"trimmed_mean", make_trimmed_mean, Repeats::at_equal_ranks, 1, {}, "Yin et al. (trimmed mean), ICML 2018"},
};

/// Error(usage): there is none.
[[nodiscard]] const Member& member(const std::string& name) {
  (void)aggregators().at(name);
  return *std::find_if(std::begin(kMembers), std::end(kMembers), [&](const Member& one) { return name == one.name; });
}

}  // namespace

const Registry<Make>& aggregators() {
  static const Registry<Make> registry("aggregator", [] {
    std::vector<Registry<Make>::Row> all;
    for (const Member& member : kMembers) {
      Registry<Make>::Row& row = all.emplace_back(member.name, member.make, member.settings, member.cites);
      if (member.repeats == Repeats::at_any_ranks) continue;
      row.settings.push_back({"faults", "(ranks - " + std::to_string(member.beside) + ") / 2"});
      row.settings.push_back({"aggregator:mixing"});
    }
    return all;
  }());
  return registry;
}

Repeats repeats(const std::string& aggregator) { return member(aggregator).repeats; }

int faults_of(const std::string& aggregator, int asked, int ranks) {
  const Member& of = member(aggregator);
  if (of.repeats == Repeats::at_any_ranks) return 0;
  require(ranks <= kMostRanks, ExitCode::usage, "--aggregator ", aggregator, " takes ", kMostRanks,
          " ranks at most, and there are ", ranks, "; start fewer, or choose --aggregator mean");
  if (asked < 0) return std::max(0, (ranks - of.beside) / 2);
  require(2 * asked < ranks, ExitCode::usage, "--faults ", asked, " of ", ranks, ranks == 1 ? " rank" : " ranks",
          " is half of them or more, which no aggregator withstands; choose ", (ranks - 1) / 2,
          " at most, or start more ranks");
  return asked;
}

std::string fault_warning(const std::string& aggregator, int asked, int ranks) {
  const Member& of = member(aggregator);
  const int faults = faults_of(aggregator, asked, ranks), wanted = 2 * faults + of.beside;
  if (ranks >= wanted) return "";
  return "--aggregator " + aggregator + " is proven for 2 f + " + std::to_string(of.beside) + " ranks, " +
         std::to_string(wanted) + " with f = " + std::to_string(faults) + " of --faults, and there are " +
         std::to_string(ranks) + ": start more, or lower --faults";
}

}  // namespace dat
