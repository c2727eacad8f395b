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

/// Activations come in groups of 16 consecutive elements, whatever the layout: one 16-bit word of ReLU mask each.
constexpr int kGroup = 16;

[[nodiscard]] inline std::int64_t groups(std::int64_t elements) { return (elements + kGroup - 1) / kGroup; }

/// Functors on activations that say how they are stored (Element) and how many there are (n) run over groups(n), and
/// compute pieces: piece<N>(k) is what becomes of the elements from N k on. On the CPU a piece is a group. On the GPU
/// it is the 16 bytes that a thread loads at once, so that the threads of a warp, beside each other, load 16 whole
/// sectors of 32 bytes; each going through a group of its own, they would load halves of 32.
template <class F>
concept ByPieces = requires {
  typename F::Element;
};
/// Functor whose piece() returns the mask of the piece, for `bits` [groups(n)], which may be null.
template <class F>
concept MaskWriter = ByPieces<F> && requires(const F& f, std::uint32_t mask) {
  mask = f.template piece<kGroup>(0);
};

/// Elements of piece k out of n: N, fewer in the last one.
template <int N>
[[nodiscard]] DAT_HD inline int piece_size(std::int64_t k, std::int64_t n) {
  return static_cast<int>(smaller<std::int64_t>(n - k * N, N));
}

/// The part of the mask that belongs to piece k, from bit 0 on.
template <int N>
[[nodiscard]] DAT_HD inline std::uint32_t mask_of_piece(const std::uint16_t* bits, std::int64_t k) {
  constexpr int kPieces = kGroup / N;
  return std::uint32_t{bits[k / kPieces]} >> N * static_cast<int>(k % kPieces);
}

/// The values of a piece, loaded before anything is stored: the compiler need not fear aliases. On the GPU a whole
/// piece moves in vectors of 16 bytes.
template <int N>
struct Piece {
  float v[N];
  template <class T>
  DAT_HD static Piece load(const T* x, int count) {
    Piece a;
    if (count == N) {
#ifdef __CUDA_ARCH__
      Vector<T> vector;
#pragma unroll
      for (int k = 0; k < N / Vector<T>::size; ++k) {
        vector.whole = reinterpret_cast<const uint4*>(x)[k];
#pragma unroll
        for (int j = 0; j < Vector<T>::size; ++j) a.v[k * Vector<T>::size + j] = to_float(vector.part[j]);
      }
#else
      DAT_SIMD
      for (int j = 0; j < N; ++j) a.v[j] = to_float(x[j]);
#endif
    } else {
      DAT_UNROLL
      for (int j = 0; j < N; ++j) a.v[j] = j < count ? to_float(x[j]) : 0.0F;
    }
    return a;
  }
  template <class T>
  DAT_HD void store(T* x, int count) const {
    if (count == N) {
#ifdef __CUDA_ARCH__
      Vector<T> vector;
#pragma unroll
      for (int k = 0; k < N / Vector<T>::size; ++k) {
#pragma unroll
        for (int j = 0; j < Vector<T>::size; ++j) vector.part[j] = Stored<T>::from(v[k * Vector<T>::size + j]);
        reinterpret_cast<uint4*>(x)[k] = vector.whole;
      }
#else
      DAT_SIMD
      for (int j = 0; j < N; ++j) x[j] = Stored<T>::from(v[j]);
#endif
    } else {
      DAT_UNROLL
      for (int j = 0; j < N; ++j)
        if (j < count) x[j] = Stored<T>::from(v[j]);
    }
  }
  template <class T>
  DAT_HD void add(const T* x, int count) {
    const Piece other = load(x, count);
    DAT_SIMD
    for (int j = 0; j < N; ++j) v[j] += other.v[j];
  }
  DAT_HD void mask(std::uint32_t bits) {
    DAT_SIMD
    for (int j = 0; j < N; ++j) v[j] = (bits & (1U << j)) != 0 ? v[j] : 0.0F;
  }
  DAT_HD void relu() {
    DAT_SIMD
    for (int j = 0; j < N; ++j) v[j] = larger(v[j], 0.0F);
  }
  [[nodiscard]] DAT_HD std::uint32_t positive() const {
    std::uint32_t open[N], bits = 0;
    DAT_SIMD
    for (int j = 0; j < N; ++j) open[j] = v[j] > 0.0F ? 1U << j : 0U;
    DAT_SIMD_OR(bits)
    for (int j = 0; j < N; ++j) bits |= open[j];
    return bits;
  }

 private:
#ifdef __CUDA_ARCH__
  template <class T>
  union Vector {
    static constexpr int size = 16 / sizeof(T);
    static_assert(N % size == 0);
    uint4 whole;
    T part[size];
  };
#endif
};

/// Per-channel values of piece k.
template <int N>
[[nodiscard]] DAT_HD inline Piece<N> channel_values(const float* values, const Layout& layout, std::int64_t k,
                                                    int count) {
  constexpr int kPieces = kGroup / N;
  // Layout::channel in 32 bits: 64-bit divisions would take longer than the rest of the kernel.
  if (layout.block == kGroup) {
    const auto row = static_cast<std::uint32_t>(k / kPieces), pixels = static_cast<std::uint32_t>(layout.h * layout.w);
    return Piece<N>::load(values + row / pixels % static_cast<std::uint32_t>(layout.c / kGroup) * kGroup +
                              static_cast<int>(k % kPieces) * N,
                          N);
  }
  if (layout.block == layout.c && layout.c % N == 0)
    return Piece<N>::load(values + static_cast<std::uint32_t>(k) % static_cast<std::uint32_t>(layout.c / N) * N, N);
  Piece<N> a;
  if (N == kGroup && layout.block == kGroup / 2) {  // eight channels of two pixels each
    const auto pixels = static_cast<std::uint32_t>(layout.h * layout.w),
               blocks = static_cast<std::uint32_t>(layout.c / layout.block);
    for (std::uint32_t half = 0; half < 2; ++half) {
      const float* const from = values + (static_cast<std::uint32_t>(2 * k) + half) / pixels % blocks * (kGroup / 2);
      DAT_UNROLL
      for (int j = 0; j < N / 2; ++j)
        a.v[static_cast<int>(half) * (N / 2) + j] = static_cast<int>(half) * (N / 2) < count ? from[j] : 0.0F;
    }
    return a;
  }
  const std::int64_t first = k * N;
  DAT_UNROLL
  for (int j = 0; j < N; ++j) a.v[j] = j < count ? values[layout.channel(first + j)] : 0.0F;
  return a;
}

/// Piece k times the values of its channels. values null: 1.
template <int N>
DAT_HD inline void multiply_channels(Piece<N>& a, const float* values, const Layout& layout, std::int64_t k,
                                     int count) {
  if (values == nullptr) return;
  const auto s = channel_values<N>(values, layout, k, count);
  DAT_SIMD
  for (int j = 0; j < N; ++j) a.v[j] *= s.v[j];
}

/// Piece k plus the values of its channels. values null: 0.
template <int N>
DAT_HD inline void add_channels(Piece<N>& a, const float* values, const Layout& layout, std::int64_t k, int count) {
  if (values == nullptr) return;
  const auto t = channel_values<N>(values, layout, k, count);
  DAT_SIMD
  for (int j = 0; j < N; ++j) a.v[j] += t.v[j];
}

/// bits[g] = which elements of y, the output of a ReLU, are positive.
template <class T>
struct MaskFromRelu {
  using Element = T;
  const T* y;
  std::uint16_t* bits;
  std::int64_t n;
  template <int N>
  DAT_HD std::uint32_t piece(std::int64_t k) const {
    return Piece<N>::load(y + k * N, piece_size<N>(k, n)).positive();
  }
};

/// out = (dy + extra) where the ReLU was open, else 0. extra may be null; out may be dy.
template <class T>
struct MaskGradient {
  using Element = T;
  const T *dy, *extra;
  const std::uint16_t* bits;
  T* out;
  std::int64_t n;
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(dy + at, count);
    if (extra != nullptr) a.add(extra + at, count);
    a.mask(mask_of_piece<N>(bits, k));
    a.store(out + at, count);
  }
};

/// y = scale[c]*x + shift[c], then ReLU where `relu`; bits (may be null) = where it is open. scale null: 1; shift null:
/// 0. y may be x.
template <class T>
struct AffineRelu {
  using Element = T;
  const T* x;
  const float *scale, *shift;
  T* y;
  std::uint16_t* bits;
  Layout layout;
  std::int64_t n;
  bool relu;
  template <int N>
  DAT_HD std::uint32_t piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(x + at, count);
    multiply_channels(a, scale, layout, k, count);
    add_channels(a, shift, layout, k, count);
    const std::uint32_t open = bits != nullptr ? a.positive() : 0;
    if (relu) a.relu();
    a.store(y + at, count);
    return open;
  }
};

/// out = or += scale[c] * (dy + extra) where the ReLU was open. extra, scale, bits may be null; out may be dy.
template <class T>
struct AffineReluGradient {
  using Element = T;
  const T *dy, *extra;
  const float* scale;
  const std::uint16_t* bits;
  T* out;
  Layout layout;
  std::int64_t n;
  bool accumulate;
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(dy + at, count);
    if (extra != nullptr) a.add(extra + at, count);
    if (bits != nullptr) a.mask(mask_of_piece<N>(bits, k));
    multiply_channels(a, scale, layout, k, count);
    if (accumulate) a.add(out + at, count);
    a.store(out + at, count);
  }
};

/// The logistic function s(x) = 1 / (1 + exp(-x)), and 1 - s(x).
struct Logistic {
  float value, complement;
};

/// Good to some units in the last place of either, in plain arithmetic that becomes vector code. exp(-x) is 2^k times
/// Taylor's series of the rest, which is at most ln(2)/2: what the series leaves out is below 0.35^8 / 8! = 6e-9 of it.
/// Beyond +-87, where floats end, s keeps its value there.
[[nodiscard]] DAT_HD inline Logistic logistic(float x) {
  constexpr float kLog2E = 1.44269504F, kShifter = 0x1.8p23F;          // numbers added to kShifter lose their fraction
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;  // the product of the former with k is exact
  const float t = smaller(-smaller(x, 87.0F), 87.0F);
  const float k = (t * kLog2E + kShifter) - kShifter;
  const float rest = (t - k * kLn2High) - k * kLn2Low;
  float series = 1.0F / 5040;
  series = series * rest + 1.0F / 720;
  series = series * rest + 1.0F / 120;
  series = series * rest + 1.0F / 24;
  series = series * rest + 1.0F / 6;
  series = series * rest + 0.5F;
  series = series * rest + 1.0F;
  series = series * rest + 1.0F;
  const std::uint32_t power = static_cast<std::uint32_t>(static_cast<std::int32_t>(k) + 127) << 23U;
  const float exponential = series * with_bits(power);
  const float value = 1.0F / (1.0F + exponential);
  return {value, exponential * value};
}

/// y = SiLU(scale[c]*x + shift[c]), where SiLU(z) = z s(z) as in PyTorch; slope = its derivative there,
/// s(z) (1 + z (1 - s(z))) (RobustBench's dm_wide_resnet.py). scale null: 1; shift null: 0. y may be x.
template <class T>
struct AffineSilu {
  using Element = T;
  const T* x;
  const float *scale, *shift;
  T *y, *slope;
  Layout layout;
  std::int64_t n;
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(x + at, count);
    multiply_channels(a, scale, layout, k, count);
    add_channels(a, shift, layout, k, count);
    Piece<N> derivative;
    DAT_SIMD
    for (int j = 0; j < N; ++j) {
      const float z = a.v[j];
      const Logistic s = logistic(z);
      a.v[j] = z * s.value;
      derivative.v[j] = s.value * (1.0F + z * s.complement);
    }
    a.store(y + at, count);
    derivative.store(slope + at, count);
  }
};

/// out = or += scale[c] * (dy + extra) * slope, the slope of AffineSilu. extra and scale may be null; out may be dy.
template <class T>
struct AffineSiluGradient {
  using Element = T;
  const T *dy, *extra;
  const float* scale;
  const T* slope;
  T* out;
  Layout layout;
  std::int64_t n;
  bool accumulate;
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(dy + at, count);
    if (extra != nullptr) a.add(extra + at, count);
    const auto derivative = Piece<N>::load(slope + at, count);
    DAT_SIMD
    for (int j = 0; j < N; ++j) a.v[j] *= derivative.v[j];
    multiply_channels(a, scale, layout, k, count);
    if (accumulate) a.add(out + at, count);
    a.store(out + at, count);
  }
};

/// y = a + b, then ReLU where `relu`; b may be null. bits (may be null) = where the ReLU is open.
template <class T>
struct Add {
  using Element = T;
  const T *a, *b;
  T* y;
  std::int64_t n;
  bool relu = false;
  std::uint16_t* bits = nullptr;
  template <int N>
  DAT_HD std::uint32_t piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto sum = Piece<N>::load(a + at, count);
    if (b != nullptr) sum.add(b + at, count);
    const std::uint32_t open = bits != nullptr ? sum.positive() : 0;
    if (relu) sum.relu();
    sum.store(y + at, count);
    return open;
  }
};

/// dx = dy where y, the output of the ReLU, is positive, else 0.
template <class T>
struct ReluGradient {
  using Element = T;
  const T *y, *dy;
  T* dx;
  std::int64_t n;
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(dy + at, count);
    a.mask(Piece<N>::load(y + at, count).positive());
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

/// A factor in device memory; null: 1.
[[nodiscard]] DAT_HD inline float factor_of(const float* factor) { return factor != nullptr ? *factor : 1.0F; }

/// dx = factor * dy [samples, c] / (h*w) at every pixel. n: elements of dx.
template <class T>
struct PoolBackward {
  using Element = T;
  const float* dy;
  T* dx;
  Layout layout;
  std::int64_t n;
  const float* factor = nullptr;  ///< argument of factor_of()
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    constexpr int kPieces = kGroup / N;
    const int count = piece_size<N>(k, n);
    const auto pixels = static_cast<std::uint32_t>(layout.h * layout.w);
    const auto part = static_cast<float>(pixels);
    Piece<N> a{};
    if (layout.c % kGroup == 0 && (layout.block == kGroup || layout.block == layout.c)) {
      // The group is 16 channels of one pixel. In 32 bits: 64-bit divisions would take longer than the rest.
      const auto row = static_cast<std::uint32_t>(k / kPieces), blocks = static_cast<std::uint32_t>(layout.c / kGroup);
      const std::uint32_t sample = row / (pixels * blocks);
      const std::uint32_t block = layout.block == kGroup ? row / pixels % blocks : row % blocks;
      a = Piece<N>::load(dy + (std::int64_t{sample} * blocks + block) * kGroup + static_cast<int>(k % kPieces) * N, N);
    } else if (N == kGroup && layout.block == kGroup / 2) {  // eight channels of two pixels each
      const std::uint32_t all = pixels * static_cast<std::uint32_t>(layout.c / layout.block);
      for (std::uint32_t half = 0; half < 2; ++half) {
        const std::uint32_t row = static_cast<std::uint32_t>(2 * k) + half;
        if (row * (kGroup / 2) >= n) continue;
        const float* const from = dy + std::int64_t{row / all} * layout.c + row % all / pixels * (kGroup / 2);
        DAT_UNROLL
        for (int j = 0; j < N / 2; ++j) a.v[static_cast<int>(half) * (N / 2) + j] = from[j];
      }
    } else {
      const std::int64_t first = k * N;
      DAT_UNROLL
      for (int j = 0; j < N; ++j)
        a.v[j] = j < count ? dy[(first + j) / layout.elements() * layout.c + layout.channel(first + j)] : 0.0F;
    }
    DAT_SIMD
    for (int j = 0; j < N; ++j) a.v[j] /= part;
    if (factor != nullptr) {
      const float f = *factor;
      DAT_SIMD
      for (int j = 0; j < N; ++j) a.v[j] *= f;
    }
    a.store(dx + k * N, count);
  }
};

/// Batch norm with running statistics as y = scale*x + shift. Runs over the channels.
struct FoldNorms {
  const float* values;
  const std::int32_t *gamma, *beta;  ///< places in `values`
  const float *mean, *variance;
  float *scale, *shift;
  float epsilon;
  DAT_HD void operator()(std::int64_t c) const {
    const float s = values[gamma[c]] / sqrtf(variance[c] + epsilon);
    scale[c] = s;
    shift[c] = values[beta[c]] - mean[c] * s;
  }
};

/// variance = 1/inverse^2 - epsilon, of inverse = 1/root(variance + epsilon).
struct BatchVariance {
  const float* inverse;
  float* variance;
  float epsilon;
  DAT_HD void operator()(std::int64_t c) const {
    variance[c] = larger(0.0F, 1.0F / (inverse[c] * inverse[c]) - epsilon);  // NaN stays NaN
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

/// y = (x - mean) / standard deviation, by channel, of images, which are CHW or HWC and have up to 4 channels. y may be
/// x. Runs over the elements.
struct NormalizeImages {
  const float* x;
  float* y;
  Layout layout;
  float mean[4], deviation[4];
  DAT_HD void operator()(std::int64_t i) const {
    // 32 bits: 64-bit divisions would take longer than the rest.
    const auto element = static_cast<std::uint32_t>(i), pixels = static_cast<std::uint32_t>(layout.h * layout.w);
    const std::uint32_t c = (layout.block == 1 ? element / pixels : element) % static_cast<std::uint32_t>(layout.c);
    y[i] = (x[i] - mean[c]) / deviation[c];
  }
};

}  // namespace dat::kernels
