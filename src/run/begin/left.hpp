#pragma once

#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/report.hpp"

namespace dat {

/// Adds to a checkpoint which ranks have left, where there are any.
void save_left(const std::vector<LeftRecord>& records, Checkpoint& checkpoint);
/// Ranks that have left, as a checkpoint says; `where` names it. Error(checkpoint): no run has such ranks.
[[nodiscard]] std::vector<LeftRecord> left_at(const Checkpoint& checkpoint, const std::string& where);
/// The records that rank 0 has, on all ranks. **Collective.**
void share(std::vector<LeftRecord>& records, Communicator& ranks);

}  // namespace dat
