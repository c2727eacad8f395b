#pragma once

#include <cstdint>
#include <memory>

#include "backend/cpu/backend.hpp"

namespace dat::cpu {

/// Convolution by oneDNN's primitives. Error(device): it has only its slow reference code for one of them.
[[nodiscard]] std::unique_ptr<Conv2d> library_convolution(CpuBackend& backend, const ConvSpec& spec);

/// Bits (may be null) of the elements of y that a ReLU has let pass. y: the result of the convolution `s`, in the
/// backend's layout.
void mask_from_relu(const CpuBackend& backend, const ConvSpec& s, const float* y, std::uint16_t* bits);

}  // namespace dat::cpu
