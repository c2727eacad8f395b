#pragma once

#include <memory>

#include "backend/cuda/pass_plan.hpp"

namespace dat::cuda {

/// The plan for a pass: of all that providers offer the fastest that is right. Each is tried on random numbers in every
/// form in which it will be called, and refused unless its results are those of the definition and it can be recorded.
/// With --deterministic nothing is timed: it is the first of them whose results never vary. Equal passes are tried
/// once. All trials are in backend.trials(). Error(device): none is right.
[[nodiscard]] std::shared_ptr<const PassPlan> choose_plan(CudaBackend&, const PassSpec&);

/// The plan for Conv2d::backward_relu; null: none is right and faster than `data`, the convolution's plan for
/// backward_data, with a pass behind it that applies mask bits.
[[nodiscard]] std::shared_ptr<const PassPlan> choose_relu_plan(CudaBackend&, const ConvSpec&,
                                                               const std::shared_ptr<const PassPlan>& data);

/// The largest error that a right result can have.
///
/// @param most    the largest size, norm and value among the elements that are checked.
/// @param tf32    f32 storage: products may be TF32's.
[[nodiscard]] float allowed_error(DType storage, bool tf32, const kernels::CheckedElement& most);

}  // namespace dat::cuda
