#pragma once

#include <cstdint>

#include "dat/tensor.hpp"

namespace dat {

/// Numbers stored in 16 bits. Arithmetic is done in float; storing rounds to the nearest, ties to even.
struct Half {  ///< IEEE 754 binary16
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

[[nodiscard]] DAT_HD inline float to_float(float x) { return x; }

[[nodiscard]] DAT_HD inline float to_float(BFloat16 x) { return with_bits(std::uint32_t{x.bits} << 16U); }

[[nodiscard]] DAT_HD inline float to_float(Half x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  // The exponent counts from 2^-112 less. A subnormal number is its digits after 2^-14, less that: exact, and never a
  // subnormal float, which costs a processor a hundred cycles (gradients below 6e-5 are subnormal here). Infinity and
  // NaN keep the largest exponent.
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x8000U) << 16U, rest = std::uint32_t{x.bits} & 0x7fffU;
  const std::uint32_t digits = rest << 13U;
  const float subnormal = with_bits(digits + (113U << 23U)) - 0x1p-14F;
  const std::uint32_t bits = rest < 0x400U    ? bits_of(subnormal)
                             : rest < 0x7c00U ? digits + (112U << 23U)
                                              : digits + (224U << 23U);
  return with_bits(sign | bits);
#endif
}

template <class T>
struct Stored {};

template <>
struct Stored<float> {
  static constexpr DType type = DType::f32;
  [[nodiscard]] DAT_HD static float from(float x) { return x; }
};

template <>
struct Stored<BFloat16> {
  static constexpr DType type = DType::bf16;
  [[nodiscard]] DAT_HD static BFloat16 from(float x) {
    const std::uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>(bits >> 16U | 0x40U)};  // NaN
    return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U)};
  }
};

template <>
struct Stored<Half> {
  static constexpr DType type = DType::f16;
  [[nodiscard]] DAT_HD static Half from(float x) {
#ifdef __CUDA_ARCH__
    Half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const std::uint32_t bits = bits_of(x);
    const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
    const std::uint32_t size = bits & 0x7fffffffU;
    if (size > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U)};   // NaN
    if (size >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // rounds to 65536 or more
    if (size < 0x38800000U) {  // subnormal: adding 1/2 leaves the wanted bits, rounded, at the end of the mantissa
      const float sum = with_bits(size) + 0.5F;
      return {static_cast<std::uint16_t>(sign | (bits_of(sum) - 0x3f000000U))};
    }
    const std::uint32_t rounded = size + 0xfffU + (size >> 13U & 1U);
    return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U))};
#endif
  }
};

/// f(T{}) for the type T of numbers stored as f32, f16 or bf16.
template <class F>
decltype(auto) with_storage(DType storage, F&& f) {
  switch (storage) {
    case DType::f16:
      return f(Half{});
    case DType::bf16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}

}  // namespace dat
