#pragma once

#include <memory>

#include "network/frozen_lowering.hpp"
#include "network/training_lowering.hpp"

namespace dat {

/// Makers of the operations that begin with a node of one kind, in either program.
struct NodeOperations {
  std::unique_ptr<FrozenOperation> (*frozen)(FrozenLowering& lowering, int node);
  std::unique_ptr<TrainingOperation> (*training)(TrainingLowering& lowering, int node);
};
[[nodiscard]] const NodeOperations& operations_of(Op op);

template <class T>
[[nodiscard]] std::unique_ptr<FrozenOperation> make_frozen(FrozenLowering& lowering, int node) {
  return std::make_unique<T>(lowering, node);
}
template <class T>
[[nodiscard]] std::unique_ptr<TrainingOperation> make_training(TrainingLowering& lowering, int node) {
  return std::make_unique<T>(lowering, node);
}
/// What batch norms, ReLUs and SiLUs are in the frozen program.
[[nodiscard]] std::unique_ptr<FrozenOperation> frozen_affine(FrozenLowering& lowering, int node);

// One for each file of nodes/.
extern const NodeOperations add_operations, convolution_operations, linear_operations, max_pool_operations,
    norm_operations, normalize_operations, pool_operations, relu_operations, silu_operations;

}  // namespace dat
