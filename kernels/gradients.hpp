#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// Place of element i of a segment in a message of floats: the segment begins at element[segment] of the flat block and
/// at byte[segment] of the message.
[[nodiscard]] DAT_HD inline std::int64_t place(const std::int64_t* element, const std::int64_t* byte, int segment,
                                               std::int64_t i) {
  return i - element[segment] + byte[segment] / std::int64_t{sizeof(float)};
}

/// Gradients of the active segments side by side in one message.
struct Pack {
  const float* gradients;
  float* message;
  const std::int64_t *element, *byte;  // [segments]
  DAT_HD void operator()(int segment, std::int64_t i) const {
    message[place(element, byte, segment, i)] = gradients[i];
  }
};

/// Inverse, times `factor`.
struct Unpack {
  const float* message;
  float* gradients;
  const std::int64_t *element, *byte;  // [segments]
  float factor;
  DAT_HD void operator()(int segment, std::int64_t i) const {
    gradients[i] = factor * message[place(element, byte, segment, i)];
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
