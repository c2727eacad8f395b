#pragma once

#include "network/frozen_lowering.hpp"

namespace dat {

/// A batch norm with running statistics, as scale*x + shift, which the program keeps (FrozenProgram::refresh).
struct FoldedNorm {
  /// No norm: scale and shift are null.
  FoldedNorm() = default;
  FoldedNorm(const FrozenLowering& lowering, int node);

  float *scale = nullptr, *shift = nullptr;  ///< [channels]
};

}  // namespace dat
