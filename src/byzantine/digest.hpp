#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "dat/backend.hpp"
#include "dat/file.hpp"

namespace dat {

/// A SHA-256.
using Sha256Digest = std::array<std::uint8_t, 32>;

/// The bytes of a value, for hashing and for messages: no pointers, no padding.
template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

/// SHA-256 of pieces one after the other, the first of which says what is hashed, so that no two things of different
/// kinds have the same hash.
[[nodiscard]] Sha256Digest digest_of(const char* what, std::initializer_list<std::span<const std::byte>> pieces);

/// Commitment to data that a rank shows later: the salt keeps others from finding out by trying.
[[nodiscard]] Sha256Digest commitment(const Sha256Digest& salt, const Sha256Digest& root);

/// Hashes runs of floats: leaves of 4 KB (kernels::HashLeaves), in parallel on a GPU, and over their digests one root,
/// which counts the elements, too. Two runs with different bits have different roots.
class RunHasher {
 public:
  /// most: elements that are hashed at a time. runs: most runs.
  RunHasher(Backend& backend, std::int64_t most, int runs);

  struct Run {
    const float* data = nullptr;  ///< data on the device
    std::int64_t elements = 0;
  };
  /// The root of each run. Waits for the device. Allocates nothing.
  void roots(std::span<const Run> runs, std::span<Sha256Digest> out);
  /// Root of a run on the host.
  [[nodiscard]] Sha256Digest root(const float* data, std::int64_t elements);

  /// Memory on the device.
  [[nodiscard]] static std::int64_t memory(std::int64_t most, int runs);

 private:
  Backend& backend_;
  Sha256 hash_;
  std::uint32_t* device_ = nullptr;  ///< digests of leaves; null on the CPU, where the library is faster
  std::uint32_t* host_ = nullptr;
};

}  // namespace dat
