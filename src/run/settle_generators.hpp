#pragma once

#include <optional>
#include <string>

#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/dataset.hpp"

namespace dat {

/// Seconds of all steps of a run, of each part of it (train/plan/parts.hpp) by --calibration, with as many generators
/// as the options name; none: the calibration is of images of another size, or the size changes. Error(usage): it has
/// not measured what the options ask for. Error(data): it is none.
[[nodiscard]] std::optional<double> forecast_of_run(const TrainOptions& whole, const Dataset& train, int ranks,
                                                    int on_node);

/// --generators auto: puts the number in its place that a forecast from --calibration says for the ranks of `world`, 0
/// where all of them should train. Returns on the first rank what the forecast says, in words; without --calibration
/// nothing happens. Errors: as forecast_of_run(). **Collective.**
[[nodiscard]] std::string settle_generators(Communicator& world, TrainOptions& options);

/// Settles the number on one process, for `ranks` ranks, on_node of them on each node.
[[nodiscard]] std::string settle_generators(TrainOptions& options, int ranks, int on_node);

}  // namespace dat
