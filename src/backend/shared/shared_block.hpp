#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace dat {

/// The next multiple of `to`, such as the bytes after which another part of a block may begin.
template <class T>
[[nodiscard]] constexpr T aligned(T count, std::type_identity_t<T> to) {
  return (count + to - 1) / to * to;
}

/// A block of memory that many ask for and all share: as large as the largest request.
struct SharedBlock {
  std::size_t bytes = 0, wanted = 0;
  void* data = nullptr;
  void request(std::size_t size) { wanted = std::max(wanted, size); }
  /// Returns whether the present block is enough.
  [[nodiscard]] bool suffices() const { return wanted <= bytes && data != nullptr; }
};

}  // namespace dat
