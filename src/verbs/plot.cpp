// The verb plot: pictures of runs and evaluations.

#include "verbs/plot.hpp"

#include <filesystem>

#include "dat/report.hpp"
#include "options/ranges.hpp"
#include "printed.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

const TableOf<PlotOptions>& plot_table() {
  static const auto all = [] {
    using O = PlotOptions;
    TableOf<O> table;
    table.add(
        "RUNS", &O::runs,
        "folders of runs (--out of train), JSON or folders of evaluations (--out of eval), folders of certifications");
    table.add("--format", &O::format, "of the pictures", one_of({"svg", "png", "pdf"}));
    table.add("--out", &O::out, "folder for the comparison of several runs; none: plots-compare", kFolder);
    return table;
  }();
  return all;
}

int run_plot(const PlotOptions& options, int, char**) {
  return print_result([&] {
    std::string text;
    const auto append = [&](const std::vector<std::string>& pictures) {
      for (const std::string& picture : pictures) text += picture + "\n";
    };
    std::vector<std::string> runs;
    std::vector<std::string> certifications;
    for (const std::string& path : options.runs)
      if (const std::string certified = certification_in(path); !certified.empty()) {
        certifications.push_back(certified);
      } else if (const std::string file = evaluation_in(path); !file.empty()) {
        const EvaluationPictures drawn = plot_evaluation(file, options.format);
        for (const std::string& remark : drawn.remarks) say(remark);
        append(drawn.paths);
      } else {
        append(plot_run(path, options.format));
        runs.push_back(path);
      }
    if (!certifications.empty())
      append(plot_certifications(certifications,
                                 certifications.size() > 1
                                     ? options.out
                                     : (std::filesystem::path(certifications[0]).parent_path() / "plots").string(),
                                 options.format));
    if (runs.size() > 1) append(compare_runs(runs, options.out, options.format));
    return text;
  });
}

}  // namespace

std::optional<PlotOptions> parse_plot(CommandLine& line) {
  PlotOptions o;
  Bound bound(plot_table(), o);
  line.describe("Draws runs and evaluations into their folders, and several runs side by side.");
  line.add(bound);
  if (!line.read()) return {};
  require(o.out.empty() || o.runs.size() > 1, ExitCode::usage,
          "--out is for the comparison of several runs; the pictures of one are in its folder plots");
  if (o.out.empty()) o.out = "plots-compare";
  return o;
}

Verb plot_verb() { return make_verb<PlotOptions>("plot", "draw the results of runs", parse_plot, run_plot); }

}  // namespace dat
