#pragma once

#include <cstdint>

namespace dat {

/// A step's gradients, one after the other, in as many equal runs as there are ranks, but for one element: part j
/// begins at element elements * j / ranks.
struct PartLayout {
  std::int64_t elements = 0;
  int ranks = 1;
  [[nodiscard]] std::int64_t begin(int part) const { return elements * part / ranks; }
  [[nodiscard]] std::int64_t size(int part) const { return begin(part + 1) - begin(part); }
  [[nodiscard]] std::int64_t longest() const { return (elements + ranks - 1) / ranks; }
};

}  // namespace dat
