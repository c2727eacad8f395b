#pragma once

#include <algorithm>
#include <cstddef>

namespace dat {

/// Bytes after which another part of a block may begin: at a multiple of `to`.
[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// A block of memory that many ask for and all share: as large as the largest request.
struct SharedBlock {
  std::size_t bytes = 0, wanted = 0;
  void* data = nullptr;
  void request(std::size_t size) { wanted = std::max(wanted, size); }
  /// Returns whether the present block is enough.
  [[nodiscard]] bool suffices() const { return wanted <= bytes && data != nullptr; }
};

}  // namespace dat
