#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dat/communicator.hpp"

namespace dat {

/// A node of the binary tree over the leaves 0, 1, ...: leaves index * 2^level to (index + 1) * 2^level - 1, as far as
/// there are so many. Its value is the sum of its left and its right half; where there is no right one, the left one.
struct TreeNode {
  int level = 0, index = 0;
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// Adds up in the order of the tree what comes from left to right, as a binary counter carries: what cannot be added
/// yet waits on a stack. The numbers that are added depend on the leaves alone, not on the nodes in which they come.
class TreeFold {
 public:
  explicit TreeFold(int leaves) : leaves_(leaves) {}
  void begin() { waiting_.clear(); }
  /// The stack, the lowest entry first.
  [[nodiscard]] const std::vector<TreeNode>& waiting() const { return waiting_; }
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }
  /// The node's value has been put on top of the stack, as entry size(): calls add(k), which adds entry k + 1 to entry
  /// k, as often as the tree says.
  template <class Add>
  void push(TreeNode node, const Add& add) {
    waiting_.push_back(grown(node));
    while (waiting_.size() > 1) {
      const TreeNode left = waiting_[waiting_.size() - 2], right = waiting_.back();
      if (right.level != left.level || left.index % 2 != 0 || right.index != left.index + 1) return;
      waiting_.pop_back();
      add(waiting_.size() - 1);
      waiting_.back() = grown({left.level + 1, left.index / 2});
    }
  }

 private:
  /// The highest node above with a sibling: nodes without a right half are their left half.
  [[nodiscard]] TreeNode grown(TreeNode node) const {
    while (node.index != 0 && node.index % 2 == 0 && std::int64_t{node.index + 1} << node.level >= leaves_)
      node = {node.level + 1, node.index / 2};
    return node;
  }

  int leaves_;
  std::vector<TreeNode> waiting_;
};

/// The tree over the micro-batches of a step, and what of it each rank can add up by itself. A sum in its order has the
/// same bits however the leaves are dealt to ranks. Where they are dealt as in dat/dealing.hpp and each rank's are all
/// of one node (such as 2, 4, 8 ranks with equally many, a power of two), a rank has a single partial sum to share.
class SummationTree {
 public:
  SummationTree(int leaves, int ranks);

  [[nodiscard]] int leaves() const { return leaves_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(nodes_.size()); }
  /// The rank's leaves begin with this one.
  [[nodiscard]] int first(int rank) const;
  [[nodiscard]] int leaves_of(int rank) const { return first(rank + 1) - first(rank); }
  /// The partial sums that are left when a rank has added up what it can, from left to right.
  [[nodiscard]] const std::vector<TreeNode>& nodes(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t all_nodes() const;
  /// Places that a rank needs to add up its leaves as they come.
  [[nodiscard]] int places(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

 private:
  int leaves_;
  std::vector<std::vector<TreeNode>> nodes_;  ///< [ranks]
  std::vector<int> places_;                   ///< [ranks]
};

/// Adds up the partial sums of all ranks in the order of the tree. Each rank gets a run of the numbers of all partial
/// sums (MPI_Alltoallv), adds it up, and sends the sum to all (MPI_Allgatherv): with one partial sum a rank, what
/// passes a rank is 2 (R - 1) / R of the numbers, as in a ring.
template <class T>
class TreeSum {
 public:
  /// piece: most numbers at a time, which says how much memory it takes and no more.
  TreeSum(Communicator& ranks, const SummationTree& tree, std::int64_t piece);
  /// Makes room for sums of so many numbers.
  void reserve(std::int64_t count);

  /// result [count]: the sum. mine: this rank's partial sums, each [count], the next one `stride` numbers after. They
  /// do not overlap with the result. `count` is the same on all ranks, and has been reserved. Allocates nothing.
  /// **Collective.**
  void sum(const T* mine, std::int64_t stride, std::int64_t count, T* result);

  /// Bytes of host memory for a sum of `count` numbers.
  [[nodiscard]] static std::int64_t memory(const SummationTree& tree, std::int64_t count, std::int64_t piece);

 private:
  /// Length of a rank's run of so many numbers.
  [[nodiscard]] std::int64_t length(std::int64_t count, int rank) const {
    return count * (rank + 1) / ranks_.size() - count * rank / ranks_.size();
  }

  Communicator& ranks_;
  const SummationTree& tree_;
  std::int64_t piece_;
  std::size_t rounds_ = 0;                 ///< most partial sums of a rank; an exchange for each
  std::vector<std::int64_t> first_row_;    ///< [rounds] of what an exchange brings, a row for each rank that has one
  std::vector<std::pair<int, int>> adds_;  ///< rows: the second one is added to the first; in row 0 is the sum
  std::vector<T> received_;                ///< [rows][length of this rank's run]; one rank alone has none
  std::vector<int> to_, from_;             ///< [ranks] bytes
};

}  // namespace dat
