#pragma once

#include <string>
#include <vector>

#include "verbs/results/comparison.hpp"

namespace dat {

/// A table as text. The first column has names, numbers are set to the right.
struct Sheet {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows{};  ///< [rows][columns]
};
/// The options that differ, the runs, figures by images and attack, evaluations image by image; those with rows alone.
/// Cells are UTF-8 in one line, without controls.
[[nodiscard]] std::vector<Sheet> sheets_of(const Comparison& comparison);
/// "[12.34, 15.60]", in percent; "-": there is none.
[[nodiscard]] std::string interval_text(const ConfidenceInterval& interval);

/// Tables for people: the options that differ, the runs, figures by images and attack, evaluations image by image.
[[nodiscard]] std::string text_of(const Comparison& comparison);
/// The same as tabulars of LaTeX, without packages.
[[nodiscard]] std::string latex_of(const Comparison& comparison);
/// One table, a line for each figure, clean ones included; of a row without any, one line. All digits.
[[nodiscard]] std::string csv_of(const Comparison& comparison);

/// Prints a comparison of runs and evaluations in one of these forms, and says which could not be read. by: as of
/// compare(). Returns the exit code: data where there is such a one, else done. Error(data): none can be read.
/// Error(io).
[[nodiscard]] int print_comparison(const std::vector<std::string>& paths, const std::string& by,
                                   std::string (*form)(const Comparison& comparison));

}  // namespace dat
