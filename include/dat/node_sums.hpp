#pragma once

#include <string>
#include <vector>

namespace dat {

/// The names of the ways in which messages are added up (src/reduce/sums/), the first one first that `auto` tries.
[[nodiscard]] std::vector<std::string> node_sums_names();

}  // namespace dat
