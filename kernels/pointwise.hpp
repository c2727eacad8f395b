#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

// Before a loop over a group: keeps it whole until it becomes vector code; unrolled early, it ends as scalar code.
#if defined(_OPENMP) && !defined(__CUDACC__)
#define DAT_SIMD _Pragma("omp simd")
#define DAT_SIMD_OR(bits) _Pragma("omp simd reduction(| : bits)")
#else
#define DAT_SIMD
#define DAT_SIMD_OR(bits)
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

/// The values of a group, loaded before anything is stored: the compiler need not fear aliases.
struct Group {
  float v[kGroup];
  DAT_HD static Group load(const float* x, int count) {
    Group a;
    if (count == kGroup) {
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] = x[j];
    } else {
      for (int j = 0; j < kGroup; ++j) a.v[j] = j < count ? x[j] : 0.0F;
    }
    return a;
  }
  DAT_HD void store(float* x, int count) const {
    if (count == kGroup) {
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) x[j] = v[j];
    } else {
      for (int j = 0; j < count; ++j) x[j] = v[j];
    }
  }
  DAT_HD void add(const float* x, int count) {
    const Group other = load(x, count);
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) v[j] += other.v[j];
  }
  DAT_HD void mask(std::uint16_t word) {
    const std::uint32_t bits = word;
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) v[j] = (bits & (1U << j)) != 0 ? v[j] : 0.0F;
  }
  [[nodiscard]] DAT_HD std::uint16_t positive() const {
    std::uint32_t open[kGroup], bits = 0;
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) open[j] = v[j] > 0.0F ? 1U << j : 0U;
    DAT_SIMD_OR(bits)
    for (int j = 0; j < kGroup; ++j) bits |= open[j];
    return static_cast<std::uint16_t>(bits);
  }
};

/// Per-channel values of a group.
[[nodiscard]] DAT_HD inline Group channel_values(const float* values, const Layout& layout, std::int64_t g, int count) {
  if (layout.block == kGroup) {
    // Layout::channel in 32 bits: 64-bit divisions would take longer than the rest of the kernel.
    const auto row = static_cast<std::uint32_t>(g), pixels = static_cast<std::uint32_t>(layout.h * layout.w);
    return Group::load(values + row / pixels % static_cast<std::uint32_t>(layout.c / kGroup) * kGroup, kGroup);
  }
  const std::int64_t first = g * kGroup;
  Group a;
  for (int j = 0; j < kGroup; ++j) a.v[j] = j < count ? values[layout.channel(first + j)] : 0.0F;
  return a;
}

/// bits[g] = which elements of y, the output of a ReLU, are positive.
struct MaskFromRelu {
  const float* y;
  std::uint16_t* bits;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const { bits[g] = Group::load(y + g * kGroup, group_size(g, n)).positive(); }
};

/// out = (dy + extra) where the ReLU was open, else 0. extra may be null; out may be dy.
struct MaskGradient {
  const float *dy, *extra;
  const std::uint16_t* bits;
  float* out;
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

/// y = scale[c]*x + shift[c], then ReLU where `relu`; bits (may be null) = where the ReLU is open. scale null: y = x.
struct AffineRelu {
  const float *x, *scale, *shift;
  float* y;
  std::uint16_t* bits;
  Layout layout;
  std::int64_t n;
  bool relu;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group a = Group::load(x + at, count);
    if (scale != nullptr) {
      const Group s = channel_values(scale, layout, g, count), t = channel_values(shift, layout, g, count);
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] = a.v[j] * s.v[j] + t.v[j];
    }
    if (relu) {
      const std::uint16_t open = a.positive();
      if (bits != nullptr) bits[g] = open;
      DAT_SIMD
      for (int j = 0; j < kGroup; ++j) a.v[j] = a.v[j] > 0.0F ? a.v[j] : 0.0F;
    }
    a.store(y + at, count);
  }
};

/// out = or += scale[c] * (dy + extra) where the ReLU was open. extra, scale, bits may be null; out may be dy.
struct AffineReluGradient {
  const float *dy, *extra, *scale;
  const std::uint16_t* bits;
  float* out;
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

/// y = a + b, b may be null.
struct Add {
  const float *a, *b;
  float* y;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group sum = Group::load(a + at, count);
    if (b != nullptr) sum.add(b + at, count);
    sum.store(y + at, count);
  }
};

/// y = max(a + b, 0), b may be null.
struct AddRelu {
  const float *a, *b;
  float* y;
  std::int64_t n;
  DAT_HD void operator()(std::int64_t g) const {
    const int count = group_size(g, n);
    const std::int64_t at = g * kGroup;
    Group sum = Group::load(a + at, count);
    if (b != nullptr) sum.add(b + at, count);
    DAT_SIMD
    for (int j = 0; j < kGroup; ++j) sum.v[j] = sum.v[j] > 0.0F ? sum.v[j] : 0.0F;
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
struct PoolForward {
  const float* x;
  float* y;
  Layout layout;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t n = i / layout.c;
    const int c = static_cast<int>(i % layout.c);
    const float* first = x + layout.offset(n, c, 0, 0);
    const int pixels = layout.h * layout.w;
    float total = 0;
    for (int p = 0; p < pixels; ++p) total += first[std::int64_t{p} * layout.block];
    y[i] = total / static_cast<float>(pixels);
  }
};

/// dx = dy [n, c] / (h*w) at every pixel. Runs over n*c*h*w.
struct PoolBackward {
  const float* dy;
  float* dx;
  Layout layout;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t n = i / layout.elements();
    dx[i] = dy[n * layout.c + layout.channel(i)] / static_cast<float>(layout.h * layout.w);
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
