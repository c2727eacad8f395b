#pragma once

#include "catch.hpp"
#include "dat/by_epoch.hpp"

namespace dat::test {

/// Each value from its epoch on: {{24, 0}, {32, 6}}.
template <class T = int>
ByEpoch<T> by_epoch(const std::vector<std::pair<T, int>>& values) {
  std::vector<typename ByEpoch<T>::Part> parts;
  for (const auto& [value, from] : values) parts.push_back({from, value, from, value});
  return ByEpoch<T>(parts);
}

}  // namespace dat::test
