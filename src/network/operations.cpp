#include "network/operations.hpp"

namespace dat {

const NodeOperations& operations_of(Op op) {
  static constexpr NodeOperations none{nullptr, nullptr};
  switch (op) {
    case Op::input:
      break;
    case Op::normalize:
      return normalize_operations;
    case Op::convolution:
      return convolution_operations;
    case Op::batch_norm:
      return norm_operations;
    case Op::relu:
      return relu_operations;
    case Op::silu:
      return silu_operations;
    case Op::add:
      return add_operations;
    case Op::max_pool:
      return max_pool_operations;
    case Op::pool:
      return pool_operations;
    case Op::linear:
      return linear_operations;
  }
  return none;
}

}  // namespace dat
