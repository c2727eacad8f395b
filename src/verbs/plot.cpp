// The verb plot: pictures of runs.

#include "dat/report.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

int run_plot(const Command& command, int, char**) {
  return print_once([&] {
    const PlotOptions& options = command.plot;
    std::string text;
    for (const std::string& run : options.runs)
      for (const std::string& picture : plot_run(run, options.format)) text += picture + "\n";
    if (options.runs.size() > 1)
      for (const std::string& picture : compare_runs(options.runs, options.out, options.format)) text += picture + "\n";
    return text;
  });
}

}  // namespace dat
