#pragma once

#include <utility>
#include <vector>

#include "dat/by_epoch.hpp"

namespace dat::test {

/// Each value from its epoch on: {{24, 0}, {32, 6}}.
inline ByEpoch<int> by_epoch(const std::vector<std::pair<int, int>>& values) {
  std::vector<ByEpoch<int>::Part> parts;
  for (const auto& [value, from] : values) parts.push_back({from, value, from, value});
  return ByEpoch<int>(parts);
}

}  // namespace dat::test
