#pragma once

#include "options/train/parse.hpp"

namespace dat {

/// Plans the run on this rank, as the verb validate does, for all ranks that are announced to the process. Error: the
/// run could not begin.
void require_valid(const TrainOrder& order);

}  // namespace dat
