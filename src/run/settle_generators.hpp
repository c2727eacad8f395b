#pragma once

#include <string>

#include "dat/communicator.hpp"
#include "dat/config.hpp"

namespace dat {

/// --generators auto: puts the number in its place that a forecast from --calibration says for the ranks of `world`, 0
/// where all of them should train, and returns the message about it on the first rank. Without `auto`, nothing
/// happens. Error(usage): the calibration has not measured what the options ask for. Error(data): it is none.
/// **Collective.**
[[nodiscard]] std::string settle_generators(Communicator& world, TrainOptions& options);

/// Settles the number on one process, for `ranks` ranks, on_node of them on each node.
[[nodiscard]] std::string settle_generators(TrainOptions& options, int ranks, int on_node);

}  // namespace dat
