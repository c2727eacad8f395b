#pragma once

#include <string>

#include "dat/report.hpp"
#include "record/history.hpp"

namespace dat {

/// SUMMARY.txt without its last line: the run's figures, what went wrong, evaluations by split and weights, seconds by
/// phase.
[[nodiscard]] std::string summary_table(const RunFacts& facts, const History& history, const FinalResult& result);

}  // namespace dat
