#pragma once

#include <string>

#include "dat/network.hpp"

namespace dat {

/// Number of a network's first parameters that --freeze names: those of this stage ("layer3"), block ("layer2.0",
/// "stem") or module ("layer2.0.conv1"), and all before them; "all-but-head": all but those of the last layer; "none":
/// 0. Error(usage): nothing has this name, nothing would be left to train, or a layer of this granularity would stand
/// still in part.
[[nodiscard]] int frozen_segments(const Graph& graph, Granularity granularity, const std::string& up_to);

}  // namespace dat
