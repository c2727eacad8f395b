// The verb plot: pictures of runs and evaluations.

#include "verbs/results/plot.hpp"

#include <filesystem>

#include "dat/report.hpp"
#include "options/ranges.hpp"
#include "printed.hpp"
#include "verbs/ranks.hpp"
#include "verbs/results/groups.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_options(TableOf<PlotOptions>& table) {
  using O = PlotOptions;
  table.add(
      "RUNS", &O::runs,
      "folders of runs (--out of train), JSON or folders of evaluations (--out of eval), folders of certifications");
  table.add("--format", &O::format, "of the pictures", one_of({"svg", "png", "pdf"}));
  table.add("--dpi", &O::dpi, "dots per inch, of which 100 show a picture as it is made for", {.low = 20, .high = 1200})
      .works_with("format", {"png"});
  table.add("--by", &O::by,
            "option whose values tell lines of several runs apart; runs that are equal in all but --seed are one line, "
            "with a band; none: a line each",
            {.label = "OPTION"});
  table.add("--out", &O::out, "folder for the comparison of several runs; none: plots-compare", kFolder);
}

/// Groups of runs by the values of an option; of one run each, where none is named.
[[nodiscard]] std::vector<RunGroup> run_groups(const std::vector<std::string>& runs, const std::string& by) {
  std::vector<RunGroup> drawn;
  if (by.empty()) {
    for (const std::string& run : runs) drawn.push_back({"", {run}});
    return drawn;
  }
  std::vector<Compared> members;
  for (const std::string& run : runs) {
    const Settings settings = settings_of_run(run);
    members.push_back({run, settings, ranks_of_run(run, settings)});
  }
  std::vector<const Compared*> all;
  for (const Compared& one : members) all.push_back(&one);
  for (const Group& group : groups_by(by, all)) {
    RunGroup& one = drawn.emplace_back(RunGroup{group.name, {}});
    for (const std::size_t member : group.members) one.folders.push_back(runs[member]);
  }
  return drawn;
}

int run_plot(const PlotOptions& options, int, char**) {
  return print_result([&] {
    const PictureFormat format(options.format, options.dpi);
    std::string text;
    const auto append = [&](const std::vector<std::string>& pictures) {
      for (const std::string& picture : pictures) text += picture + "\n";
    };
    std::vector<std::string> runs, certifications;
    for (const std::string& path : options.runs)
      if (const std::string certified = certification_in(path); !certified.empty()) {
        certifications.push_back(certified);
      } else if (const std::string file = evaluation_in(path); !file.empty()) {
        const EvaluationPictures drawn = plot_evaluation(file, format);
        for (const std::string& remark : drawn.remarks) say(remark);
        append(drawn.paths);
      } else {
        append(plot_run(path, format));
        runs.push_back(path);
      }
    if (!certifications.empty())
      append(plot_certifications(certifications,
                                 certifications.size() > 1
                                     ? options.out
                                     : (std::filesystem::path(certifications[0]).parent_path() / "plots").string(),
                                 format));
    if (runs.size() > 1) append(compare_runs(run_groups(runs, options.by), options.out, format));
    return text;
  });
}

}  // namespace

std::optional<PlotOptions> parse_plot(CommandLine& line) {
  auto read = read_options<PlotOptions>(
      line, "Draws runs and evaluations into their folders, and several runs side by side.", add_options);
  if (!read) return {};
  PlotOptions& o = *read;
  require(o.out.empty() || o.runs.size() > 1, ExitCode::usage,
          "--out is for the comparison of several runs; the pictures of one are in its folder plots");
  require(o.by.empty() || o.runs.size() > 1, ExitCode::usage,
          "--by groups several runs, and one is named; leave it off");
  if (o.out.empty()) o.out = "plots-compare";
  return o;
}

Verb plot_verb() { return make_verb("plot", "draw the results of runs", parse_plot, run_plot); }

}  // namespace dat
