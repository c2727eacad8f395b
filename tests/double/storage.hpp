#pragma once

// Numbers in device memory, as the libraries store them: float, half, bfloat16. Sums are computed in double.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace dat_double {

inline std::size_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

inline float load(const void* data, cudaDataType_t type, std::size_t i) {
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(data)[i]);
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

/// data[i] = value + beta * data[i]; what is there is not read if beta is 0.
inline void blend(void* data, cudaDataType_t type, std::size_t i, double value, float beta) {
  const auto v = static_cast<float>(beta == 0 ? value : value + double{beta} * load(data, type, i));
  if (type == CUDA_R_16F)
    static_cast<__half*>(data)[i] = __float2half(v);
  else if (type == CUDA_R_16BF)
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(v);
  else
    static_cast<float*>(data)[i] = v;
}

/// The first 10 of the 23 bits after the point, as tensor cores take them.
inline float tf32(float x) { return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000U) & 0xffffe000U); }

inline std::vector<float> read(const void* data, cudaDataType_t type, std::size_t n, bool as_tf32) {
  std::vector<float> out(n);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < n; ++i) {
    const float x = load(data, type, i);
    out[i] = as_tf32 && type == CUDA_R_32F && x - x == 0 ? tf32(x) : x;
  }
  return out;
}

/// What a library may do to its workspace: it becomes NaN. Of a large one the beginning and, from call to call, the
/// next part of the rest.
inline void scribble(void* workspace, std::size_t bytes) {
  constexpr std::size_t kBeginning = 1 << 16, kPart = 1 << 19;
  static std::size_t calls = 0;  // one stream runs at a time
  auto* const data = static_cast<char*>(workspace);
  if (bytes > 0) std::memset(data, 0xFF, std::min(bytes, kBeginning));
  if (bytes <= kBeginning) return;
  const std::size_t parts = (bytes - kBeginning + kPart - 1) / kPart, at = kBeginning + calls++ % parts * kPart;
  std::memset(data + at, 0xFF, std::min(kPart, bytes - at));
}

}  // namespace dat_double
