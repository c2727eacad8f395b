#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// Gradients of the active segments side by side in one message: element i of a segment goes to i + shift[segment].
struct Pack {
  const float* gradients;
  float* message;
  const std::int64_t* shift;  // [segments]
  DAT_HD void operator()(int segment, std::int64_t i) const { message[i + shift[segment]] = gradients[i]; }
};

/// The way back, times `factor`.
struct Unpack {
  const float* message;
  float* gradients;
  const std::int64_t* shift;  // [segments]
  float factor;
  DAT_HD void operator()(int segment, std::int64_t i) const { gradients[i] = factor * message[i + shift[segment]]; }
};

/// The sum of squares of each segment (gradient norms).
struct SquaredNorm {
  const float* x;
  DAT_HD Sums operator()(int, std::int64_t i) const { return {{double(x[i]) * double(x[i]), 0, 0}}; }
};

}  // namespace dat::kernels
