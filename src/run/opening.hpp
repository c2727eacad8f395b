#pragma once

#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/report.hpp"
#include "run/begin/beginning.hpp"
#include "train/trainer.hpp"

namespace dat {

/// Facts for the report of a run, beside those of the trainer.
struct Opening {
  const TrainOptions& options;
  std::string folder;
  std::string config;  ///< resolved options, as text
  std::string provenance;
  const Beginning& beginning;
  std::vector<std::string> notices;  ///< notices about devices (device_notices)
};

/// Facts that do not change during the run, for the report. On rank 0.
[[nodiscard]] RunFacts run_facts(const Opening& opening, Trainer& trainer, Communicator& ranks);
/// Reports to the user what he should know before the first step: warnings, then what is trained, on what, by whom. On
/// rank 0.
void tell_opening(Report& report, const Opening& opening, Trainer& trainer, Communicator& ranks);

}  // namespace dat
