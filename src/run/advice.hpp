#pragma once

#include <string>
#include <vector>

#include "dat/config.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// Advice about options that run, but are hardly what was meant: a sentence each. `plan`: of the run. `cores`: this
/// rank's share of those of its node. epoch: of the part of the training that is planned (train/plan/parts.hpp).
[[nodiscard]] std::vector<std::string> advice(const TrainOptions& options, const Plan& plan, int cores,
                                              std::int64_t epoch = 0);

/// " (OMP_NUM_THREADS)" or " (--threads)", where that has asked for fewer threads than this rank's share of the cores;
/// else empty.
[[nodiscard]] std::string source_of_fewer_threads(const TrainOptions& options, int cores);

}  // namespace dat
