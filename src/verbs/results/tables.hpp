#pragma once

#include <string>

#include "verbs/results/comparison.hpp"

namespace dat {

/// Tables for people: the options that differ, the runs, figures by images and attack, evaluations image by image.
[[nodiscard]] std::string text_of(const Comparison& comparison);
/// The same as tabulars of LaTeX, without packages.
[[nodiscard]] std::string latex_of(const Comparison& comparison);
/// One table, a line for each figure, clean ones included; of a row without any, one line. All digits.
[[nodiscard]] std::string csv_of(const Comparison& comparison);

}  // namespace dat
