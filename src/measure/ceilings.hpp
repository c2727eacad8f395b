#pragma once

#include <string>
#include <vector>

#include "dat/backend.hpp"

namespace dat {

/// Highest rate that the device reaches.
struct Ceiling {
  std::string name, unit;       ///< unit: GFLOP/s or GB/s
  double median = 0, best = 0;  ///< 0: not measured
  std::string note;             ///< reason why it is missing; or the subject of the measurement
};
/// Multiply-adds in registers (CPU only), copying and adding of large arrays, a large matrix product: in this order.
/// On a backend of its own, in about `seconds`.
[[nodiscard]] std::vector<Ceiling> measure_ceilings(const BackendOptions& options, double seconds);

}  // namespace dat
