#pragma once

#include <string>
#include <vector>

namespace dat {

/// "rank 3" or "ranks 0 to 2, 5"; `ranks` increasing.
[[nodiscard]] inline std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t k = 0; k < ranks.size(); ++k) {
    std::size_t last = k;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (k > 0 ? ", " : "") + std::to_string(ranks[k]);
    if (last > k) text += (last > k + 1 ? " to " : ", ") + std::to_string(ranks[last]);
    k = last;
  }
  return text;
}

}  // namespace dat
