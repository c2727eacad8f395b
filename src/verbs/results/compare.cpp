// The verb compare: runs and evaluations as tables, with intervals.

#include "dat/error.hpp"
#include "options/ranges.hpp"
#include "printed.hpp"
#include "verbs/ranks.hpp"
#include "verbs/results/tables.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

struct CompareOptions {
  std::vector<std::string> paths;  ///< runs, evaluations, folders of them
  std::string by;                  ///< option by which runs are grouped; empty: a row each
  bool csv = false, latex = false;
};

const TableOf<CompareOptions>& compare_table() {
  static const auto all = [] {
    using O = CompareOptions;
    TableOf<O> table;
    table.add("PATHS", &O::paths,
              "folders of runs (--out of train), JSON or folders of evaluations (--out of eval), folders that have any "
              "of these in them");
    table.add("--by", &O::by,
              "option whose values make the rows; runs that are equal in all but --seed are one: mean, standard "
              "deviation, Student's 95 % interval; none: a row each, with Wilson's",
              {.label = "OPTION"});
    table.add("--csv", &O::csv, "one table as CSV, a line for each figure, with all digits");
    table.add("--latex", &O::latex, "the tables as LaTeX");
    table.not_together({"csv"}, {"latex"}, "--csv and --latex are two forms of the same; give one of them");
    return table;
  }();
  return all;
}

int run_compare(const CompareOptions& options, int, char**) {
  std::vector<Subject> subjects;
  const int code = print_result([&] {
    subjects = read_subjects(options.paths);
    require_readable(subjects);
    const Comparison comparison = compare(subjects, options.by);
    for (const std::string& warning : comparison.warnings) say("warning: " + warning);
    return options.csv ? csv_of(comparison) : options.latex ? latex_of(comparison) : text_of(comparison);
  });
  const int left_out = tell_left_out(subjects);
  return left_out != 0 ? left_out : code;
}

std::optional<CompareOptions> parse_compare(CommandLine& line) {
  CompareOptions o;
  Bound bound(compare_table(), o);
  line.describe("Puts runs and evaluations side by side: options that differ, speed, accuracy with intervals.");
  line.add(bound);
  if (!line.read()) return {};
  bound.check(true);
  return o;
}

}  // namespace

Verb compare_verb() {
  return make_verb<CompareOptions>("compare", "runs, seeds and evaluations in tables, with intervals", parse_compare,
                                   run_compare);
}

}  // namespace dat
