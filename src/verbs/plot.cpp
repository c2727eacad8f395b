// The verb plot: pictures of runs and evaluations.

#include <iostream>

#include "dat/report.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

int run_plot(const Command& command, int, char**) {
  return print_once([&] {
    const PlotOptions& options = command.plot;
    std::string text;
    const auto append = [&](const std::vector<std::string>& pictures) {
      for (const std::string& picture : pictures) text += picture + "\n";
    };
    std::vector<std::string> runs;
    for (const std::string& path : options.runs)
      if (const std::string file = evaluation_in(path); !file.empty()) {
        const EvaluationPictures drawn = plot_evaluation(file, options.format);
        for (const std::string& remark : drawn.remarks) std::cerr << "dat_hpc: " + remark + "\n";
        append(drawn.paths);
      } else {
        append(plot_run(path, options.format));
        runs.push_back(path);
      }
    if (runs.size() > 1) append(compare_runs(runs, options.out, options.format));
    return text;
  });
}

}  // namespace dat
