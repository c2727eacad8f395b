#include "reduce/sums/order.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace dat {

/// Numbers of all rows that stay in the cache.
constexpr std::int64_t kBlockOfSum = 2048;
/// Partial sums that wait for each other: a tree has a level for each power of two.
constexpr std::size_t kDeepest = 32;

SumOrder::SumOrder(int ranks, const SummationTree* tree, int parts) : parts_(parts) {
  for (int rank = 0; rank < ranks; ++rank)
    first_.push_back(first_.back() + (tree == nullptr ? 1 : static_cast<int>(std::ssize(tree->nodes(rank)))));
  if (tree == nullptr) {
    for (int part = 0; part < parts; ++part) {
      taken_.emplace_back();
      for (int k = 0; k < ranks; ++k) taken_.back().push_back({(part + ranks - 1 + k) % ranks, k > 0 ? 1 : 0});
    }
    return;
  }
  TreeFold fold(tree->leaves());
  taken_.emplace_back();
  for (int rank = 0; rank < ranks; ++rank)
    for (const TreeNode& node : tree->nodes(rank)) {
      taken_.back().push_back({static_cast<int>(std::ssize(taken_.back())), 0});
      assert(fold.size() < kDeepest);
      fold.push(node, [&](std::size_t) { ++taken_.back().back().adds; });
    }
}

std::int64_t SumOrder::begin(int part, std::int64_t count) const {
  part = std::min(part, parts_);
  return count / parts_ * part + std::min<std::int64_t>(part, count % parts_);
}

void SumOrder::add(int part, std::span<const float* const> rows, std::int64_t count, std::span<float* const> sums,
                   bool threads) const {
  const std::vector<Taken>& taken = taken_[std::min(static_cast<std::size_t>(part), taken_.size() - 1)];
#pragma omp parallel for schedule(static) if (threads && count > 8 * kBlockOfSum)
  for (std::int64_t at = 0; at < count; at += kBlockOfSum)
    add_block(taken, rows, at, std::min(kBlockOfSum, count - at), sums);
}

void SumOrder::add_block(const std::vector<Taken>& taken, std::span<const float* const> rows, std::int64_t at,
                         std::int64_t count, std::span<float* const> sums) const {
  std::array<const float*, kDeepest> stack;  // rows, or partial sums of them
  alignas(64) std::array<std::array<float, kBlockOfSum>, kDeepest> partial;
  std::size_t size = 0;
  for (const Taken& one : taken) {
    stack[size++] = rows[static_cast<std::size_t>(one.row)] + at;
    for (int adds = one.adds; adds > 0; --adds) {
      const float* const right = stack[--size];
      const float* const left = stack[size - 1];
      float* const to = partial[size - 1].data();
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) to[i] = left[i] + right[i];
      stack[size - 1] = to;
    }
  }
  for (float* const sum : sums)
    if (stack[0] != sum + at) std::copy_n(stack[0], count, sum + at);
}

}  // namespace dat
