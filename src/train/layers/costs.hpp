#pragma once

#include <vector>

#include "dat/communicator.hpp"
#include "dat/dataset.hpp"
#include "replica/replica.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// Seconds that each layer [layers] adds to a step in which it takes part: its weight gradients on this rank, and its
/// share of the sum over the ranks, as if nothing of that were hidden. Measured on some images, in the time of about
/// ten steps; what the programs and the gradients hold afterwards is void. A part of the costs of --budget-unit
/// seconds.
/// **Collective.**
///
/// @param passes  The training passes of a micro-batch.
[[nodiscard]] std::vector<double> measure_layer_seconds(Replica& replica, const Plan& plan, const DatasetInfo& images,
                                                        int passes, Communicator& ranks);

}  // namespace dat
