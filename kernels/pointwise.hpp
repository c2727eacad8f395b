#pragma once

#include <cmath>
#include <cstdint>

#include "dat/half.hpp"
#include "launch.hpp"

// Before a loop over a group. On the CPU: keeps it whole until it becomes vector code; unrolled early, it ends as
// scalar code. On the GPU: unrolls it, so that the group stays in registers. DAT_UNROLL: the latter alone.
#if defined(__CUDA_ARCH__)
#define DAT_UNROLL _Pragma("unroll")
#define DAT_SIMD DAT_UNROLL
#define DAT_SIMD_OR(bits) DAT_UNROLL
#else
#define DAT_UNROLL
#if defined(_OPENMP)
#define DAT_SIMD _Pragma("omp simd")
#define DAT_SIMD_OR(bits) _Pragma("omp simd reduction(| : bits)")
#else
#define DAT_SIMD
#define DAT_SIMD_OR(bits)
#endif
#endif

namespace dat::kernels {

/// Point-wise kernels work on groups of 16 consecutive elements, whatever the layout: one 16-bit word of ReLU mask
/// each.
constexpr int kGroup = 16;

[[nodiscard]] inline std::int64_t groups(std::int64_t elements) { return (elements + kGroup - 1) / kGroup; }

/// Elements of group g out of n: 16, fewer in the last one.
[[nodiscard]] DAT_HD inline int group_size(std::int64_t g, std::int64_t n) {
  const std::int64_t rest = n - g * kGroup;
  return rest < kGroup ? static_cast<int>(rest) : kGroup;
}

/// The values of a group, loaded before anything is stored: the compiler need not fear aliases. On the GPU a whole
/// group moves in pieces of 16 bytes.
struct Group {
  float v[kGroup];
  template <class T>
  DAT_HD static Group load(const T* x, int count) {
    Group a;
    if (count == kGroup) {
#ifdef __CUDA_ARCH__
      Piece<T> piece;
#pragma unroll
      for (int k = 0; k < kGroup / Piece<T>::size; ++k) {
        piece.whole = reinterpret_cast<const uint4*>(x)[k];
#pragma unroll
        for (int j = 0; j < Piece<T>::size; ++j) a.v[k * Piece<T>::size + j] = to_float(piece.part[j]);
      }
#else
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] = to_float(x[j]);
#endif
    } else {
      DAT_UNROLL
      for (int j = 0; j < kGroup; ++j) a.v[j] = j < count ? to_float(x[j]) : 0.0F;
    }
    return a;
  }
  template <class T>
  DAT_HD void store(T* x, int count) const {
    if (count == kGroup) {
#ifdef __CUDA_ARCH__
      Piece<T> piece;
#pragma unroll
      for (int k = 0; k < kGroup / Piece<T>::size; ++k) {
#pragma unroll
        for (int j = 0; j < Piece<T>::size; ++j) piece.part[j] = Stored<T>::from(v[k * Piece<T>::size + j]);
        reinterpret_cast<uint4*>(x)[k] = piece.whole;
      }
#else
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) x[j] = Stored<T>::from(v[j]);
#endif
    } else {
      DAT_UNROLL
      for (int j = 0; j < kGroup; ++j)
        if (j < count) x[j] = Stored<T>::from(v[j]);
    }
  }
  template <class T>
  DAT_HD void add(const T* x, int count) {
    const Group other = load(x, count);
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) v[j] += other.v[j];
  }
  DAT_HD void mask(std::uint16_t word) {
    const std::uint32_t bits = word;
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) v[j] = (bits & (1U << j)) != 0 ? v[j] : 0.0F;
  }
  DAT_HD void relu() {
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) v[j] = v[j] > 0.0F ? v[j] : 0.0F;
  }
  [[nodiscard]] DAT_HD std::uint16_t positive() const {
    std::uint32_t open[kGroup], bits = 0;
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) open[j] = v[j] > 0.0F ? 1U << j : 0U;
    DAT_SIMD_OR(bits)
    for (int j = 0; j < kGroup; ++j) bits |= open[j];
    return static_cast<std::uint16_t>(bits);
  }

 private:
#ifdef __CUDA_ARCH__
  template <class T>
  union Piece {
    static constexpr int size = 16 / sizeof(T);
    uint4 whole;
    T part[size];
  };
#endif
};

/// Per-channel values of a group.
[[nodiscard]] DAT_HD inline Group channel_values(const float* values, const Layout& layout, std::int64_t g, int count) {
  if (layout.block == kGroup) {
    // Layout::channel in 32 bits: 64-bit divisions would take longer than the rest of the kernel.
    const auto row = static_cast<std::uint32_t>(g), pixels = static_cast<std::uint32_t>(layout.h * layout.w);
    return Group::load(values + row / pixels % static_cast<std::uint32_t>(layout.c / kGroup) * kGroup, kGroup);
  }
  if (layout.block == layout.c && layout.c % kGroup == 0)
    return Group::load(values + static_cast<std::uint32_t>(g) % static_cast<std::uint32_t>(layout.c / kGroup) * kGroup,
                       kGroup);
  const std::int64_t first = g * kGroup;
  Group a;
  DAT_UNROLL
  for (int j = 0; j < kGroup; ++j) a.v[j] = j < count ? values[layout.channel(first + j)] : 0.0F;
  return a;
}

/// bits[g] = which elements of y, the output of a ReLU, are positive.
template <class T>
struct MaskFromRelu {
  const T* y;
  std::uint16_t* bits;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const { bits[g] = Group::load(y + g * kGroup, group_size(g, n)).positive(); }
};

/// out = (dy + extra) where the ReLU was open, else 0. extra may be null; out may be dy.
template <class T>
struct MaskGradient {
  const T *dy, *extra;
  const std::uint16_t* bits;
  T* out;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group a = Group::load(dy + at, count);
    if (extra != nullptr) a.add(extra + at, count);
    a.mask(bits[g]);
    a.store(out + at, count);
  }
};

/// y = scale[c]*x + shift[c], then ReLU where `relu`; bits (may be null) = where the ReLU is open. scale null: 1;
/// shift null: 0. y may be x.
template <class T>
struct AffineRelu {
  const T* x;
  const float *scale, *shift;
  T* y;
  std::uint16_t* bits;
  Layout layout;
  std::int64_t n;
  bool relu;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group a = Group::load(x + at, count);
    if (scale != nullptr) {
      const Group s = channel_values(scale, layout, g, count);
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] *= s.v[j];
    }
    if (shift != nullptr) {
      const Group t = channel_values(shift, layout, g, count);
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] += t.v[j];
    }
    if (relu) {
      if (bits != nullptr) bits[g] = a.positive();
      a.relu();
    }
    a.store(y + at, count);
  }
};

/// out = or += scale[c] * (dy + extra) where the ReLU was open. extra, scale, bits may be null; out may be dy.
template <class T>
struct AffineReluGradient {
  const T *dy, *extra;
  const float* scale;
  const std::uint16_t* bits;
  T* out;
  Layout layout;
  std::int64_t n;
  bool accumulate;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group a = Group::load(dy + at, count);
    if (extra != nullptr) a.add(extra + at, count);
    if (bits != nullptr) a.mask(bits[g]);
    if (scale != nullptr) {
      const Group s = channel_values(scale, layout, g, count);
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] *= s.v[j];
    }
    if (accumulate) a.add(out + at, count);
    a.store(out + at, count);
  }
};

/// y = a + b, then ReLU where `relu`; b may be null. bits (may be null) = where the ReLU is open.
template <class T>
struct Add {
  const T *a, *b;
  T* y;
  std::int64_t n;
  bool relu = false;
  std::uint16_t* bits = nullptr;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group sum = Group::load(a + at, count);
    if (b != nullptr) sum.add(b + at, count);
    if (bits != nullptr) bits[g] = sum.positive();
    if (relu) sum.relu();
    sum.store(y + at, count);
  }
};

/// dx = dy where y, the output of the ReLU, is positive, else 0.
struct ReluGradient {
  const float *y, *dy;
  float* dx;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group a = Group::load(dy + at, count);
    a.mask(Group::load(y + at, count).positive());
    a.store(dx + at, count);
  }
};

/// Global average pool: y [n, c] = mean of x over h, w. Runs over n*c.
template <class T>
struct PoolForward {
  const T* x;
  float* y;
  Layout layout;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t n = i / layout.c;
    const int c = static_cast<int>(i % layout.c);
    const T* first = x + layout.offset(n, c, 0, 0);
    const int pixels = layout.h * layout.w;
    float total = 0;
    for (int p = 0; p < pixels; ++p) total += to_float(first[std::int64_t{p} * layout.block]);
    y[i] = total / static_cast<float>(pixels);
  }
};

/// dx = dy [samples, c] / (h*w) at every pixel. n: elements of dx.
template <class T>
struct PoolBackward {
  const float* dy;
  T* dx;
  Layout layout;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const auto pixels = static_cast<std::uint32_t>(layout.h * layout.w);
    const auto part = static_cast<float>(pixels);
    Group a;
    if (layout.c % kGroup == 0 && (layout.block == kGroup || layout.block == layout.c)) {
      // The group is 16 channels of one pixel. In 32 bits: 64-bit divisions would take longer than the rest.
      const auto row = static_cast<std::uint32_t>(g), blocks = static_cast<std::uint32_t>(layout.c / kGroup);
      const std::uint32_t sample = row / (pixels * blocks);
      const std::uint32_t block = layout.block == kGroup ? row / pixels % blocks : row % blocks;
      a = Group::load(dy + (std::int64_t{sample} * blocks + block) * kGroup, kGroup);
    } else {
      const std::int64_t first = g * kGroup;
      DAT_UNROLL
      for (int j = 0; j < kGroup; ++j)
        a.v[j] = j < count ? dy[(first + j) / layout.elements() * layout.c + layout.channel(first + j)] : 0.0F;
    }
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) a.v[j] /= part;
    a.store(dx + g * kGroup, count);
  }
};

/// Batch norm with running statistics as y = scale*x + shift. Runs over the channels.
struct FoldNorm {
  const float *gamma, *beta, *mean, *variance;
  float *scale, *shift;
  float epsilon;
  DAT_HD void operator()(std::int64_t c) const {
    const float s = gamma[c] / sqrtf(variance[c] + epsilon);
    scale[c] = s;
    shift[c] = beta[c] - mean[c] * s;
  }
};

/// y = or += a*x.
struct Scale {
  const float* x;
  float* y;
  float a;
  bool accumulate;
  DAT_HD void operator()(std::int64_t i) const { y[i] = accumulate ? y[i] + a * x[i] : a * x[i]; }
};

/// y = a*b.
struct Multiply {
  const float *a, *b;
  float* y;
  DAT_HD void operator()(std::int64_t i) const { y[i] = a[i] * b[i]; }
};

/// running = (1 - momentum)*running + momentum*statistic (PyTorch's BatchNorm2d).
struct RunningStatistic {
  const float* statistic;
  float* running;
  float momentum;
  DAT_HD void operator()(std::int64_t i) const {
    running[i] = (1.0F - momentum) * running[i] + momentum * statistic[i];
  }
};

}  // namespace dat::kernels
