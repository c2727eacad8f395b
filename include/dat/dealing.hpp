#pragma once

#include <cstdint>

namespace dat {

/// First of the micro-batches of rank `rank` in a step, numbered over all ranks, with --deterministic: rank r has the
/// micro-batches from first_micro_batch(all, ranks, r) to first_micro_batch(all, ranks, r + 1) - 1. So neighbouring
/// micro-batches stay together, and no rank has more than one micro-batch more than another.
[[nodiscard]] constexpr int first_micro_batch(int all, int ranks, int rank) {
  return static_cast<int>(std::int64_t{all} * rank / ranks);
}

}  // namespace dat
