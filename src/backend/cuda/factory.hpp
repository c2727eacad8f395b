#pragma once

#include <memory>

#include "dat/backend.hpp"

namespace dat {

/// Made by src/backend/cuda/ where the build has CUDA, else by src/backend/no_cuda.cpp. Error(device): the GPU cannot
/// be used.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&);

}  // namespace dat
