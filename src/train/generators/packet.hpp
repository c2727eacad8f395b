#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dat/backend.hpp"

namespace dat {

/// A message between a trainer and a generator, in one piece of pinned host memory: a hash (XXH3) of all that
/// follows, a header, numbers. Header goes as it lies in memory; its size is a multiple of 8 bytes.
template <class Header>
class Packet {
  static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) % 8 == 0);

 public:
  /// Room for `most` bytes after the header, as long as the backend lives.
  Packet(Backend& backend, std::size_t most, const char* what)
      : memory_(static_cast<std::byte*>(backend.allocate_pinned(kBegin + most, what))), most_(most) {}

  [[nodiscard]] void* data() { return memory_; }
  [[nodiscard]] std::size_t room() const { return kBegin + most_; }
  [[nodiscard]] static std::size_t bytes(std::size_t behind) { return kBegin + behind; }
  [[nodiscard]] Header& header() { return *reinterpret_cast<Header*>(memory_ + sizeof(std::uint64_t)); }
  [[nodiscard]] std::byte* behind() { return memory_ + kBegin; }

  /// Writes the hash of the header and of so many bytes after it, when all of it is there.
  void seal(std::size_t behind) { hash() = XXH3_64bits(memory_ + sizeof(std::uint64_t), sizeof(Header) + behind); }
  /// Returns whether the hash is that of a message of so many bytes.
  [[nodiscard]] bool whole(std::size_t bytes) {
    return bytes >= kBegin && hash() == XXH3_64bits(memory_ + sizeof(std::uint64_t), bytes - sizeof(std::uint64_t));
  }

 private:
  static constexpr std::size_t kBegin = sizeof(std::uint64_t) + sizeof(Header);
  [[nodiscard]] std::uint64_t& hash() { return *reinterpret_cast<std::uint64_t*>(memory_); }

  std::byte* memory_;
  std::size_t most_;
};

}  // namespace dat
