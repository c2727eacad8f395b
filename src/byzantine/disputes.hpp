#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "dat/aggregator.hpp"

namespace dat {

/// Pairs of ranks that have had a dispute about a message between them, which the sender could show in the end. At
/// least one of the two has lied, and nobody knows which one. Ranks have their numbers of the launch.
class Disputes {
 public:
  void note(int one, int other) {
    of(one) |= bit(other);
    of(other) |= bit(one);
  }
  /// A rank has left, and nobody's dispute with it counts any more.
  void forget(int rank) {
    for (std::uint64_t& with : with_) with &= ~bit(rank);
    of(rank) = 0;
  }
  /// Number of ranks with which a rank has had disputes, if those of `more`, a bit each, are added. A rank with more
  /// disputes than there may be liars is one.
  [[nodiscard]] int count(int rank, std::uint64_t more = 0) const {
    return std::popcount(with_[static_cast<std::size_t>(rank)] | more);
  }
  [[nodiscard]] static std::uint64_t bit(int rank) { return std::uint64_t{1} << static_cast<unsigned>(rank); }

  [[nodiscard]] const std::array<std::uint64_t, kMostRanks>& all() const { return with_; }
  [[nodiscard]] std::array<std::uint64_t, kMostRanks>& all() { return with_; }

 private:
  [[nodiscard]] std::uint64_t& of(int rank) { return with_[static_cast<std::size_t>(rank)]; }
  std::array<std::uint64_t, kMostRanks> with_{};
};

}  // namespace dat
