#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"

namespace dat {

/// Options of `plot`.
struct PlotOptions {
  std::vector<std::string> runs;  ///< folders of runs; files or folders of evaluations
  std::string format = "svg";     ///< svg | png | pdf
  int dpi = 100;                  ///< dots per inch of a png
  std::string by;                 ///< option whose values tell groups of runs apart; empty: runs are not grouped
  std::string out;                ///< folder of the pictures that compare runs; never empty for several runs
};

/// Parser for make_verb().
[[nodiscard]] std::optional<PlotOptions> parse_plot(CommandLine& line);

}  // namespace dat
