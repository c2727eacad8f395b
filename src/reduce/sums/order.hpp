#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reduce/sums/summation_tree.hpp"

namespace dat {

/// Order in which rows of numbers of all ranks are added up. Each part of the numbers has an order.
class SumOrder {
 public:
  /// tree: as SumOptions have it; null: the ring's. parts: at most `ranks`.
  SumOrder(int ranks, const SummationTree* tree, int parts);

  /// The first row of a rank; of one more, the number of all rows.
  [[nodiscard]] int first(int rank) const { return first_[static_cast<std::size_t>(rank)]; }
  /// The first of `count` numbers that are in this part; after the last part, `count`.
  [[nodiscard]] std::int64_t begin(int part, std::int64_t count) const;

  /// Adds up the numbers of a part of all rows, each [count], and writes the sum to all of `sums`, which may be
  /// rows. threads: whether to use those of OpenMP.
  void add(int part, std::span<const float* const> rows, std::int64_t count, std::span<float* const> sums,
           bool threads) const;

 private:
  /// A row that is put on top of a stack, and additions of the two on top of it that follow.
  struct Taken {
    int row = 0, adds = 0;
  };
  void add_block(const std::vector<Taken>& taken, std::span<const float* const> rows, std::int64_t at,
                 std::int64_t count, std::span<float* const> sums) const;

  int parts_;
  std::vector<int> first_{0};              ///< [ranks + 1]
  std::vector<std::vector<Taken>> taken_;  ///< [parts] of each part; [1] where all have the same
};

}  // namespace dat
