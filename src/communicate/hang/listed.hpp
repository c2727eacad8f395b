#pragma once

#include <string>
#include <vector>

namespace dat {

/// "rank 3" or "ranks 0 to 2, 5"; `ranks` increasing.
[[nodiscard]] std::string listed(const std::vector<int>& ranks);

}  // namespace dat
