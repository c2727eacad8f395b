#include "network/operations.hpp"

#include <iterator>

namespace dat {

const NodeOperations& operations_of(Op op) {
  // In the order of Op. The images, the first, are taken before any operation.
  static constexpr const NodeOperations* all[] = {
      nullptr,          &normalize_operations, &convolution_operations, &norm_operations, &relu_operations,
      &silu_operations, &add_operations,       &max_pool_operations,    &pool_operations, &linear_operations};
  static_assert(std::size(all) == kOps);
  return *all[static_cast<std::size_t>(op)];
}

}  // namespace dat
