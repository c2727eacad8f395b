#pragma once

#include <string>
#include <vector>

#include "dat/config.hpp"

namespace dat {

/// What the options ask for that runs, but is hardly what was meant: a sentence each. `batch`: images per rank and step
/// as they will be. `epochs`: that the run makes. `cores`: this rank's share of those of its node.
[[nodiscard]] std::vector<std::string> advice(const TrainOptions& options, int batch, double epochs, int cores);

}  // namespace dat
