#include "backend/cpu/winograd.hpp"

#include <algorithm>

namespace dat::cpu {

namespace {

constexpr int kTaps = 9;

/// Up to this size of the transformed weights, they are kept whole, and tiles of x in a part of an L2 cache beside
/// them. Larger ones are transformed in pieces that fit, and tiles of x lie in the L3 cache.
constexpr std::int64_t kSmallWeights = 3 << 20, kTileBytes = 300'000, kManyTileBytes = 5'000'000;

}  // namespace

Winograd::Winograd(const Spec& spec) : spec_(spec) {
  const int side = spec.kind == Kind::up ? 8 : 4, points = spec.kind == Kind::same ? 36 : 81;
  tiles_high_ = (spec.h_out + side - 1) / side;
  tiles_wide_ = (spec.w_out + side - 1) / side;
  tiles_ = spec.n * tiles_high_ * tiles_wide_;
  constexpr std::int64_t kBytes = sizeof(float), kMatrices = 36;
  small_weights_ = kBytes * kMatrices * spec.c_in * spec.c_out <= kSmallWeights;
  const std::int64_t count = (small_weights_ ? kTileBytes : kManyTileBytes) / (kBytes * points * spec.c_in);
  group_ = static_cast<int>(std::clamp<std::int64_t>(count / 8 * 8, 8, (tiles_ + 7) / 8 * 8));
}

std::size_t Winograd::packed_size() const {
  return static_cast<std::size_t>(spec_.c_in) * kTaps * static_cast<std::size_t>(spec_.c_out);
}

void Winograd::pack(const float* weights, const float* scale, float* packed) const {
  constexpr int kSquare = 16;
  const std::int64_t in = spec_.c_in, out = spec_.c_out;
#pragma omp parallel for schedule(static) num_threads(spec_.threads)
  for (std::int64_t first = 0; first < in; first += kSquare)
    for (std::int64_t k = 0; k < out; k += kSquare)
      for (int tap = 0; tap < kTaps; ++tap)
        for (std::int64_t i = first; i < std::min(first + kSquare, in); ++i)
          for (std::int64_t o = k; o < std::min(k + kSquare, out); ++o)
            packed[(i * kTaps + tap) * out + o] =
                weights[(o * kTaps + tap) * in + i] * (scale != nullptr ? scale[o] : 1.0F);
}

void Winograd::pack_turned(const float* weights, const float* scale, float* packed) const {
  const std::int64_t out = spec_.c_out;
#pragma omp parallel for schedule(static) num_threads(spec_.threads)
  for (int c = 0; c < spec_.c_in; ++c)
    for (int tap = 0; tap < kTaps; ++tap) {
      const float* from = weights + (std::int64_t{c} * kTaps + kTaps - 1 - tap) * out;
      float* to = packed + (std::int64_t{c} * kTaps + tap) * out;
      const float factor = scale != nullptr ? scale[c] : 1.0F;
      for (std::int64_t o = 0; o < out; ++o) to[o] = from[o] * factor;
    }
}

std::unique_ptr<Winograd> make_winograd(const Winograd::Spec& spec) {
#if defined(__x86_64__)
  if (spec.block == 16 && __builtin_cpu_supports("avx512f")) return make_winograd_avx512(spec);
  if (spec.block == 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return make_winograd_avx2(spec);
#endif
  return nullptr;
}

}  // namespace dat::cpu
