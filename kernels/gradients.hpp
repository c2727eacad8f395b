#pragma once

#include <cstddef>
#include <cstdint>

#include "dat/half.hpp"
#include "launch.hpp"

namespace dat::kernels {

/// Gradients of the active segments side by side in one message, each rounded to the type T: a segment begins at
/// element[segment] of the flat block and at byte[segment] of the message.
template <class T>
struct Pack {
  const float* gradients;
  void* message;
  const std::int64_t *element, *byte;  // [segments]
  DAT_HD void operator()(int segment, std::int64_t i) const {
    T* const begin = reinterpret_cast<T*>(static_cast<std::byte*>(message) + byte[segment]);
    begin[i - element[segment]] = Stored<T>::from(gradients[i]);
  }
};

/// Inverse, times `factor`.
template <class T>
struct Unpack {
  const void* message;
  float* gradients;
  const std::int64_t *element, *byte;  // [segments]
  float factor;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    const T* const begin = reinterpret_cast<const T*>(static_cast<const std::byte*>(message) + byte[segment]);
    gradients[i] = factor * to_float(begin[i - element[segment]]);
  }
};

/// result = factor * the sum over the ranks, in their order; rank r's gradients are at gradients + r * stride.
struct MeanOfRanks {
  const float* gradients;
  std::int64_t stride;
  int ranks;
  float factor;
  float* result;
  DAT_HD void operator()(int, std::int64_t i) const {
    float total = gradients[i];
    for (int rank = 1; rank < ranks; ++rank) total += gradients[rank * stride + i];
    result[i] = factor * total;
  }
};

struct Zero {
  float* x;
  DAT_HD void operator()(int, std::int64_t i) const { x[i] = 0; }
};

/// Multiplies gradients by the factors of their segments, factor [segments]. Sums: the squares before that.
struct Weigh {
  float* gradients;
  const float* factor;
  DAT_HD Sums operator()(int segment, std::int64_t i) const {
    const float g = gradients[i];
    gradients[i] = factor[segment] * g;
    return {{double(g) * double(g)}};
  }
};

/// The sum of squares of each segment (gradient norms).
struct SquaredNorm {
  const float* x;
  DAT_HD Sums operator()(int, std::int64_t i) const { return {{double(x[i]) * double(x[i])}}; }
};

}  // namespace dat::kernels
