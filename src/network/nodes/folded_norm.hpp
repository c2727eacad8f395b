#pragma once

#include "dat/program.hpp"
#include "network/frozen_lowering.hpp"

namespace dat {

/// The places of the first `channels` channels of a model's batch norms.
[[nodiscard]] NormPlaces find_norms(const Model& model, std::int64_t channels);

/// A batch norm with running statistics, as scale*x + shift, which the program keeps (FrozenProgram::refresh).
struct FoldedNorm {
  /// No norm: scale and shift are null.
  FoldedNorm() = default;
  FoldedNorm(const FrozenLowering& lowering, int node);

  float *scale = nullptr, *shift = nullptr;  ///< [channels]
};

}  // namespace dat
