#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "dat/random.hpp"
#include "gradients.hpp"

// Gradients to messages and back, for the codecs of src/reduce/codec/. In all of them element [tensors] is where a
// tensor begins in the flat block of gradients, size [tensors] its elements, byte [tensors] where its message begins.

namespace dat::kernels {

/// sum = factor * (sum + gradients).
struct AddRank {
  const float* gradients;
  float factor;
  float* sum;
  DAT_HD void operator()(int, std::int64_t i) const { sum[i] = factor * (sum[i] + gradients[i]); }
};

/// The counted random numbers of one message: four of each group of four elements of a tensor.
struct Draw {
  std::uint64_t seed;
  std::uint32_t step, sender;
  /// first: the group's first element in the flat block.
  [[nodiscard]] DAT_HD Philox4 words(std::int64_t first) const {
    return random_words(seed, Purpose::gradient_codec, step, static_cast<std::uint64_t>(first), sender);
  }
};
[[nodiscard]] inline Draw draw_of(std::uint64_t seed, std::int64_t step, int rank, int round) {
  return {seed, static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(2 * rank + round)};
}

/// QSGD with 127 levels: 2 * level + [g > 0] in a byte, after the tensor's norm; the level is 127 |g| / norm, rounded
/// up with the probability that makes its mean right. The first element of each group of four does the work. A norm
/// that is not finite goes with the highest levels, so that nobody takes the gradient for a good one.
struct QuantiseLevels {
  static constexpr float kLevels = 127.0F;
  const float* gradients;
  std::byte* message;
  const std::int64_t *element, *size, *byte;
  const double* sums;  // [.][kSums] of squares, beginning with tensor `first`
  int first;
  Draw draw;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const std::int64_t at = i - element[tensor];
    if (at % 4 != 0) return;
    const auto norm = static_cast<float>(sqrt(sums[(tensor - first) * kSums]));
    const std::int64_t left = size[tensor] - at;
    const Philox4 random = draw.words(i);
    std::uint32_t bytes = 0;
    for (int k = 0; k < 4; ++k)
      if (k < left) bytes |= code(gradients[i + k], norm, uniform(random.v[k])) << 8 * k;
    auto* const words = reinterpret_cast<std::uint32_t*>(message + byte[tensor]);
    words[1 + at / 4] = bytes;
    if (at == 0) *reinterpret_cast<float*>(words) = norm;
  }

 private:
  [[nodiscard]] DAT_HD static std::uint32_t code(float gradient, float norm, float random) {
    const std::uint32_t positive = gradient > 0 ? 1 : 0;
    if (norm == 0) return positive;
    const float exact = std::fabs(gradient) / norm * kLevels;
    if (!(exact < kLevels)) return 2 * static_cast<std::uint32_t>(kLevels) + positive;
    const auto low = static_cast<std::uint32_t>(exact);
    return 2 * (low + (random < exact - static_cast<float>(low) ? 1U : 0U)) + positive;
  }
};

struct ValuesOfLevels {
  const std::byte* message;
  float* gradients;
  const std::int64_t *element, *byte;
  float factor;
  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const std::byte* const of = message + byte[tensor];
    const auto code = static_cast<std::uint32_t>(of[sizeof(float) + static_cast<std::size_t>(i - element[tensor])]);
    const float size = *reinterpret_cast<const float*>(of) * (static_cast<float>(code >> 1U) / QuantiseLevels::kLevels);
    gradients[i] = factor * (code % 2 == 1 ? size : -size);
  }
};

/// Sum, sum of squares and largest magnitude of each chunk; its first element does the work. A number that is not
/// finite makes all three so.
struct ChunkMoments {
  const float* gradients;
  const std::int64_t *element, *size;
  const std::int32_t* chunk;  // [.] first chunk of each tensor from `first` on, counted from `origin`
  std::int32_t origin;
  int first;
  double* partial;  // [chunks][kSums]

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const std::int64_t at = i - element[tensor];
    if (at % kChunk != 0) return;
    const std::int64_t count = smaller<std::int64_t>(size[tensor] - at, kChunk);
    double total = 0, squares = 0;
    float largest = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const float g = gradients[i + k], magnitude = std::fabs(g);
      total += g;
      squares += double(g) * g;
      largest = larger(magnitude, largest);
    }
    double* const out = partial + (chunk[tensor - first] - origin + at / kChunk) * kSums;
    out[0] = total;
    out[1] = squares;
    out[2] = largest + 0 * squares;
  }
};

/// TernGrad's scale of each tensor, sums [t * kSums]: the largest magnitude after gradients are clipped to `clip`
/// standard deviations of its `real` elements, those that are no padding; 0: they are not. A tensor whose elements are
/// all the same is not clipped.
struct TernaryScale {
  const std::int32_t* chunk;
  std::int32_t origin;
  const std::int64_t* real;
  int first;
  const double* partial;
  double clip;
  double* sums;

  DAT_HD void operator()(std::int64_t t) const {
    double total = 0, squares = 0, largest = 0;
    for (std::int64_t k = chunk[t] - origin; k < chunk[t + 1] - origin; ++k) {
      total += partial[k * kSums];
      squares += partial[k * kSums + 1];
      largest = larger(partial[k * kSums + 2], largest);
    }
    const double count = static_cast<double>(real[first + t]), mean = total / count;
    const double variance = squares / count - mean * mean;
    const double limit = clip * std::sqrt(variance);  // not a number where rounding has left less than 0
    sums[t * kSums] = (limit > 0 ? smaller(limit, largest) : largest) + 0 * squares;
  }
};

/// TernGrad: a sign or nothing, nonzero with the probability |g| / scale, 2 bits an element after the tensor's scale:
/// -1, 0 and 1 as 0, 1 and 2. The first element of each group of 16 does the work.
struct Ternary {
  static constexpr int kGroup = 16;
  const float* gradients;
  std::byte* message;
  const std::int64_t *element, *size, *byte;
  const double* sums;  // [.][kSums] the scales, beginning with tensor `first`
  int first;
  Draw draw;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const std::int64_t at = i - element[tensor], left = size[tensor] - at;
    if (at % kGroup != 0) return;
    const auto scale = static_cast<float>(sums[(tensor - first) * kSums]);
    std::uint32_t codes = 0;
    for (int k = 0; k < kGroup && k < left; k += 4) {
      const Philox4 random = draw.words(i + k);
      for (int j = 0; j < 4 && k + j < left; ++j) {
        const float g = gradients[i + k + j];
        const bool nonzero = uniform(random.v[j]) < std::fabs(g) / scale;  // not where both are 0
        codes |= (!nonzero ? 1U : g > 0 ? 2U : 0U) << 2 * (k + j);
      }
    }
    auto* const words = reinterpret_cast<std::uint32_t*>(message + byte[tensor]);
    words[1 + at / kGroup] = codes;
    if (at == 0) *reinterpret_cast<float*>(words) = scale;
  }
};

struct ValuesOfTernary {
  const std::byte* message;
  float* gradients;
  const std::int64_t *element, *byte;
  float factor;
  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const std::byte* const of = message + byte[tensor];
    const std::int64_t at = i - element[tensor];
    const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(of)[1 + at / Ternary::kGroup];
    const int sign = static_cast<int>(codes >> 2 * (at % Ternary::kGroup) & 3U) - 1;
    gradients[i] = factor * (*reinterpret_cast<const float*>(of) * static_cast<float>(sign));
  }
};

}  // namespace dat::kernels
