// The verb data inspect: what is in data files.

#include "verbs/data/data.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

const TableOf<InspectOptions>& inspect_table() {
  static const auto all = [] {
    TableOf<InspectOptions> table;
    table.add("FILES", &InspectOptions::files, "data files");
    return table;
  }();
  return all;
}

int run_inspect(const InspectOptions& o, int, char**) {
  return print_result([&] {
    std::string text;
    for (const std::string& path : o.files) text += inspect_dataset(path);
    return text;
  });
}

}  // namespace

std::optional<InspectOptions> parse_inspect(CommandLine& line) {
  InspectOptions o;
  Bound bound(inspect_table(), o);
  line.describe("Describes data files: shapes, classes, source, hash.");
  line.add(bound);
  if (!line.read()) return {};
  return o;
}

Verb data_inspect_verb() {
  return make_verb<InspectOptions>("data inspect", "describe data files", parse_inspect, run_inspect);
}

}  // namespace dat
