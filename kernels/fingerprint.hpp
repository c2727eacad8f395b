#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// A bijection of 64 bits in which every bit of the result depends on every bit of the argument: the finaliser of
/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014; constants: Stafford's
/// variant 13).
[[nodiscard]] DAT_HD inline std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27U) * 0x94d049bb133111ebU;
  return x ^ x >> 31U;
}

/// The part of word number i in a fingerprint, which is the sum of these parts modulo 2^64. For each i it is another
/// bijection of the word, so no change of a single word leaves the sum as it was.
[[nodiscard]] DAT_HD inline std::uint64_t fingerprint_of(std::int64_t i, std::uint32_t word) {
  return mix_bits(static_cast<std::uint64_t>(i) << 32U | word);
}

/// The fingerprint of the bits of x in three sums, of its lower 22 bits, the next 21 and the upper 21: below 2^31
/// elements they are exact in double, so their order does not matter.
struct Fingerprint {
  const float* x;
  DAT_HD Sums operator()(int, std::int64_t i) const {
    const std::uint64_t part = fingerprint_of(i, bits_of(x[i]));
    // By way of 32 bits, which every processor converts in vectors.
    const auto bits = [](std::uint64_t value) { return static_cast<double>(static_cast<std::int32_t>(value)); };
    return {{bits(part & 0x3fffffU), bits(part >> 22U & 0x1fffffU), bits(part >> 43U)}};
  }
};

/// Fingerprint from the three sums.
[[nodiscard]] inline std::uint64_t fingerprint_of(const double* sums) {
  return static_cast<std::uint64_t>(sums[0]) + (static_cast<std::uint64_t>(sums[1]) << 22U) +
         (static_cast<std::uint64_t>(sums[2]) << 43U);
}

/// A sketch of x: two sums with signs that the place of an element decides, and the sum of the squares. The difference
/// of two sketches is the sketch of the difference d, and the square of either of its sums has the mean sum of d^2
/// (Alon, Matias, Szegedy, "The Space Complexity of Approximating the Frequency Moments", STOC 1996).
struct Sketch {
  const float* x;
  DAT_HD Sums operator()(int, std::int64_t i) const {
    const std::uint64_t bits = mix_bits(static_cast<std::uint64_t>(i));
    const double value = double(x[i]);
    return {{(bits & 1U) != 0 ? value : -value, (bits & 2U) != 0 ? value : -value, value * value}};
  }
};

}  // namespace dat::kernels
