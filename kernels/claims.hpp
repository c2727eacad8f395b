#pragma once

#include <cstdint>

#include "aggregate.hpp"
#include "fingerprint.hpp"

namespace dat::kernels {

/// Number i of the random direction with this key: uniform in [-1, 1).
[[nodiscard]] DAT_HD inline double direction(std::uint64_t key, std::int64_t i) {
  const std::uint64_t word = mix_bits(key + static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15U);
  return static_cast<double>(static_cast<std::int64_t>(word)) * 0x1p-63;
}

/// Sums for runs of gradients x and of a result v: <z, x - v>, |x - v|^2 and |v|^2, z being each run's direction. Run k
/// is segment k of the chunks.
struct ClaimSums {
  const float *x, *v;
  std::int64_t x_begin[kMostRanks], v_begin[kMostRanks];  // start of each run in x and v
  std::uint64_t key[kMostRanks];
  DAT_HD Sums operator()(int run, std::int64_t i) const {
    const std::int64_t at = i - x_begin[run];
    const double result = double(v[v_begin[run] + at]), difference = double(x[i]) - result;
    return {{direction(key[run], at) * difference, difference * difference, result * result}};
  }
};

}  // namespace dat::kernels
