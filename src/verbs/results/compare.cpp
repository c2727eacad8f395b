// The verb compare: runs and evaluations as tables, with intervals.

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

void add_options(TableOf<CompareOptions>& table) {
  using O = CompareOptions;
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
}

int run_compare(const CompareOptions& options, int, char**) {
  std::string (*form)(const Comparison&) = text_of;
  if (options.csv) form = csv_of;
  if (options.latex) form = latex_of;
  return print_comparison(options.paths, options.by, form);
}

std::optional<CompareOptions> parse_compare(CommandLine& line) {
  return read_options<CompareOptions>(
      line, "Puts runs and evaluations side by side: options that differ, speed, accuracy with intervals.",
      add_options);
}

}  // namespace

int print_comparison(const std::vector<std::string>& paths, const std::string& by,
                     std::string (*form)(const Comparison& comparison)) {
  std::vector<Subject> subjects;
  static_cast<void>(print_result([&] {
    subjects = read_subjects(paths);
    require_readable(subjects);
    const Comparison comparison = compare(subjects, by);
    for (const std::string& warning : comparison.warnings) say("warning: " + warning);
    return form(comparison);
  }));
  return tell_left_out(subjects);
}

Verb compare_verb() {
  return make_verb("compare", "runs, seeds and evaluations in tables, with intervals", parse_compare, run_compare);
}

}  // namespace dat
