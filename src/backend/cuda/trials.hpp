#pragma once

#include <memory>

#include "backend/cuda/pass_plan.hpp"

namespace dat::cuda {

/// The plan for a pass: of all plans that providers offer, the fastest right one. Each plan is tried on random numbers
/// in every form in which it will be called, and refused unless its results are those of the definition and it can be
/// recorded. With --deterministic nothing is timed: the first right plan is taken whose results never vary. Equal
/// passes are tried once. All trials are in backend.trials(). Error(device): no plan is right.
[[nodiscard]] std::shared_ptr<const PassPlan> choose_plan(CudaBackend&, const PassSpec&);

/// The plan for Conv2d::backward_relu; null: no plan is right and faster than `data`, the convolution's plan for
/// backward_data, with a pass after it that applies mask bits.
[[nodiscard]] std::shared_ptr<const PassPlan> choose_relu_plan(CudaBackend&, const ConvSpec&,
                                                               const std::shared_ptr<const PassPlan>& data);

/// The largest error that a right result can have.
///
/// @param most    the largest size, norm and value among the elements that are checked.
/// @param tf32    f32 storage: products may be TF32's.
[[nodiscard]] float allowed_error(DType storage, bool tf32, const kernels::CheckedElement& most);

}  // namespace dat::cuda
