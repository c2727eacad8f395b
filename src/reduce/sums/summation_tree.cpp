#include "reduce/sums/summation_tree.hpp"

#include <algorithm>
#include <cassert>

#include "dat/dealing.hpp"

namespace dat {

SummationTree::SummationTree(int leaves, int ranks) : leaves_(leaves) {
  TreeFold fold(leaves);
  nodes_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    int& places = places_.emplace_back();
    fold.begin();
    for (int leaf = first(rank); leaf < first(rank + 1); ++leaf) {
      places = std::max(places, static_cast<int>(fold.size()) + 1);
      fold.push({0, leaf}, [](std::size_t) {});
    }
    nodes_[static_cast<std::size_t>(rank)] = fold.waiting();
  }
}

int SummationTree::first(int rank) const { return first_micro_batch(leaves_, ranks(), rank); }

std::int64_t SummationTree::all_nodes() const {
  std::int64_t all = 0;
  for (const std::vector<TreeNode>& nodes : nodes_) all += std::ssize(nodes);
  return all;
}

template <class T>
TreeSum<T>::TreeSum(Communicator& ranks, const SummationTree& tree, std::int64_t piece)
    : ranks_(ranks),
      tree_(tree),
      piece_(piece),
      to_(static_cast<std::size_t>(ranks.size())),
      from_(static_cast<std::size_t>(ranks.size())) {
  assert(tree.ranks() == ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) rounds_ = std::max(rounds_, tree.nodes(rank).size());
  // Rows as the exchanges bring them, and the order in which the tree takes them.
  std::vector<std::vector<int>> row(static_cast<std::size_t>(ranks.size()));
  int rows = 0;
  for (std::size_t round = 0; round < rounds_; ++round) {
    first_row_.push_back(rows);
    for (int rank = 0; rank < ranks.size(); ++rank)
      if (tree.nodes(rank).size() > round) row[static_cast<std::size_t>(rank)].push_back(rows++);
  }
  TreeFold fold(tree.leaves());
  std::vector<int> stack;
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (std::size_t k = 0; k < tree.nodes(rank).size(); ++k) {
      stack.push_back(row[static_cast<std::size_t>(rank)][k]);
      fold.push(tree.nodes(rank)[k], [&](std::size_t left) {
        adds_.emplace_back(stack[left], stack[left + 1]);
        stack.pop_back();
      });
    }
  assert(stack == std::vector{0});
}

template <class T>
void TreeSum<T>::reserve(std::int64_t count) {
  received_.resize(static_cast<std::size_t>(memory(tree_, count, piece_)) / sizeof(T));
}

template <class T>
void TreeSum<T>::sum(const T* mine, std::int64_t stride, std::int64_t count, T* result) {
  if (ranks_.size() == 1) {
    std::copy_n(mine, count, result);
    return;
  }
  const std::size_t nodes = tree_.nodes(ranks_.rank()).size();
  for (std::int64_t at = 0; at < count; at += piece_) {
    const std::int64_t n = std::min(piece_, count - at);
    const auto bytes = [&](int rank) { return static_cast<int>(length(n, rank) * std::int64_t{sizeof(T)}); };
    const std::int64_t own = length(n, ranks_.rank());
    for (std::size_t round = 0; round < rounds_; ++round) {
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        const auto k = static_cast<std::size_t>(rank);
        to_[k] = round < nodes ? bytes(rank) : 0;
        from_[k] = round < tree_.nodes(rank).size() ? bytes(ranks_.rank()) : 0;
      }
      const T* const send = mine + at + static_cast<std::int64_t>(std::min(round, nodes - 1)) * stride;
      ranks_.exchange(send, to_, received_.data() + first_row_[round] * own, from_);
    }
    // Some numbers of all rows at a time stay in the cache; threads share them out.
    constexpr std::int64_t kBlock = 2048;
#pragma omp parallel for schedule(static) if (own > 8 * kBlock)
    for (std::int64_t first = 0; first < own; first += kBlock)
      for (const auto& [to, from] : adds_) {
        T* const sum = received_.data() + to * own;
        const T* const more = received_.data() + from * own;
        for (std::int64_t i = first; i < std::min(own, first + kBlock); ++i) sum[i] += more[i];
      }
    for (int rank = 0; rank < ranks_.size(); ++rank) to_[static_cast<std::size_t>(rank)] = bytes(rank);
    ranks_.all_gather(received_.data(), result + at, to_);
  }
}

template <class T>
std::int64_t TreeSum<T>::memory(const SummationTree& tree, std::int64_t count, std::int64_t piece) {
  const std::int64_t most = std::min(count, piece), ranks = tree.ranks();
  return ranks == 1 ? 0 : tree.all_nodes() * ((most + ranks - 1) / ranks) * std::int64_t{sizeof(T)};
}

template class TreeSum<float>;
template class TreeSum<double>;

}  // namespace dat
