#pragma once

#include "catch.hpp"

namespace dat::test {

/// The sum of leaf(0), ..., leaf(leaves - 1) as the tree defines it: the two halves of the leaves index * 2^level to
/// (index + 1) * 2^level - 1, each added up so; empty where there are no such leaves.
template <class Leaf>
[[nodiscard]] auto sum_of_node(int leaves, int level, int index, const Leaf& leaf) -> std::optional<decltype(leaf(0))> {
  if (index << level >= leaves) return std::nullopt;
  if (level == 0) return leaf(index);
  auto left = sum_of_node(leaves, level - 1, 2 * index, leaf);
  const auto right = sum_of_node(leaves, level - 1, 2 * index + 1, leaf);
  if (right) *left += *right;
  return left;
}

template <class Leaf>
[[nodiscard]] auto sum_by_tree(int leaves, const Leaf& leaf) {
  int level = 0;
  while (1 << level < leaves) ++level;
  return *sum_of_node(leaves, level, 0, leaf);
}

}  // namespace dat::test
