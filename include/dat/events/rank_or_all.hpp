#pragma once

namespace dat {

/// A rank of the launch, or -1: all of them, which is null in a line.
struct RankOrAll {
  int number = -1;

  RankOrAll(int rank = -1) : number(rank) {}  // NOLINT(google-explicit-constructor): a rank is one
  operator int() const { return number; }     // NOLINT(google-explicit-constructor)
};

}  // namespace dat
