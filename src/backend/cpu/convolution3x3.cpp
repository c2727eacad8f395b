#include "backend/cpu/convolution3x3.hpp"

#include <algorithm>
#include <utility>

namespace dat::cpu {

Convolution3x3::Spec Convolution3x3::Spec::turned() const {
  Spec t = *this;
  t.kind = kind == Kind::same ? Kind::same : Kind::up;
  std::swap(t.c_in, t.c_out);
  std::swap(t.h, t.h_out);
  std::swap(t.w, t.w_out);
  return t;
}

void Convolution3x3::pack(const float* weights, const float* scale, float* packed) const {
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
  transform(packed);
}

void Convolution3x3::pack_turned(const float* weights, const float* scale, float* packed) const {
  const std::int64_t out = spec_.c_out;
#pragma omp parallel for schedule(static) num_threads(spec_.threads)
  for (int c = 0; c < spec_.c_in; ++c)
    for (int tap = 0; tap < kTaps; ++tap) {
      const float* from = weights + (std::int64_t{c} * kTaps + kTaps - 1 - tap) * out;
      float* to = packed + (std::int64_t{c} * kTaps + tap) * out;
      const float factor = scale != nullptr ? scale[c] : 1.0F;
      for (std::int64_t o = 0; o < out; ++o) to[o] = from[o] * factor;
    }
  transform(packed);
}

Convolution3x3::Part Convolution3x3::part(int row_unit, int input_unit, int wanted) const {
  const auto half = [](int size, int unit) { return parts(2 * unit, size) * unit; };
  Part p{std::min(128, spec_.c_out), std::min(64, spec_.c_in)};
  while (parts(p.rows, spec_.c_out) * parts(p.inputs, spec_.c_in) < wanted &&
         (p.rows > row_unit || p.inputs > input_unit))
    if (p.rows >= p.inputs)
      p.rows = half(p.rows, row_unit);
    else
      p.inputs = half(p.inputs, input_unit);
  return p;
}

std::unique_ptr<Convolution3x3> make_convolution3x3(const Convolution3x3::Spec& spec) {
#if defined(__x86_64__)
  if (spec.bf16_parts > 0 && spec.c_in % 32 == 0 && spec.c_out % 32 == 0) return make_amx_convolution(spec);
  if (spec.block == 16 && __builtin_cpu_supports("avx512f")) return make_winograd_avx512(spec);
  if (spec.block == 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return make_winograd_avx2(spec);
#endif
  return nullptr;
}

}  // namespace dat::cpu
