#pragma once

#include "network/frozen_lowering.hpp"

namespace dat {

/// A batch norm with running statistics, as scale*x + shift.
class FoldedNorm {
 public:
  /// No norm: scale and shift are null.
  FoldedNorm() = default;
  FoldedNorm(const FrozenLowering& lowering, int node);
  /// From the model's parameters and running statistics as they are now.
  void refresh(const Model& model) const;

  float *scale = nullptr, *shift = nullptr;  ///< [channels]

 private:
  const Node* node_ = nullptr;
};

}  // namespace dat
