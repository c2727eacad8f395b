#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dat/backend.hpp"
#include "dat/parameters.hpp"

namespace dat {

/// Sums for claims: over runs of gradients beside a result (kernels::ClaimSums), in an order that follows from a run's
/// length alone.
class RunSums {
 public:
  /// A run of x, where it begins in v, and the key of its direction.
  struct Run {
    std::int64_t x = 0, elements = 0, v = 0;
    std::uint64_t key = 0;
  };

  /// Sums over at most so many runs, with at most so many elements in all.
  RunSums(Backend& backend, std::int64_t most, int runs);
  [[nodiscard]] static std::int64_t memory(std::int64_t most, int runs);

  /// Chunks of runs, a segment each. Valid until the next call of a member.
  [[nodiscard]] Chunks chunks_of(std::span<const Run> runs);
  /// [runs][kSums] on the host, valid until the next call. Waits for the device.
  [[nodiscard]] const double* of(std::span<const Run> runs, const float* x, const float* v);

 private:
  Backend& backend_;
  std::vector<Chunk> chunks_;
  std::vector<std::int32_t> first_;
  Chunk* device_chunks_;
  std::int32_t* device_first_;
  double *partial_, *sums_, *host_;
};

}  // namespace dat
