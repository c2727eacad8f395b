#pragma once

#include <cstdint>

#include "dat/tensor.hpp"
#include "launch.hpp"
#include "move_weights.hpp"

namespace dat {

/// Queues a copy of floats [count] on the device, as words: arithmetic may change bits of what is not a number.
inline void copy_bits(const Device& device, const float* from, float* to, std::int64_t count) {
  each(device, count,
       kernels::CopyWords{reinterpret_cast<const std::int32_t*>(from), reinterpret_cast<std::int32_t*>(to)});
}

}  // namespace dat
