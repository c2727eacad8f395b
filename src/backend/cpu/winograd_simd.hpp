#pragma once

// Winograd's algorithm in the compiler's vector types; included once for each instruction set.

#include <omp.h>

#include <algorithm>
#include <memory>

#include "backend/cpu/winograd.hpp"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace dat::cpu {

namespace {

constexpr int kOut = 4, kIn = 6, kPoints = kIn * kIn, kTaps = 9;

/// Channels of one product at a time: so many transformed weights stay in the L2 cache. Their products are summed
/// first, which also halves the rounding errors at 512 channels.
constexpr int kChunk = 128;
/// Skews arrays whose sizes are powers of two, which would compete for the same places of a cache.
constexpr std::int64_t kSkew = 80;

template <int B>
struct Lanes {
  using Type [[gnu::vector_size(B * sizeof(float)), gnu::may_alias]] = float;
};
template <int B>
using Vector = typename Lanes<B>::Type;

template <int B>
[[gnu::always_inline]] inline Vector<B>& at(float* p) {
  return *reinterpret_cast<Vector<B>*>(p);
}
template <int B>
[[gnu::always_inline]] inline const Vector<B>& at(const float* p) {
  return *reinterpret_cast<const Vector<B>*>(p);
}

// The transformations for the points 0, a, -a, b, -b and infinity (Lavin and Gray, section 4.3, have 1 and 2). With 5/8
// and 3/2 the error is half as large (docs/performance.md).
constexpr float kA = 0.625F, kB = 1.5F, kA2 = kA * kA, kB2 = kB * kB, kSum = kA2 + kB2, kProduct = kA2 * kB2;

/// t = B^T d: 6 pixels of x.
template <class V>
[[gnu::always_inline]] inline void transform_input(const V* d, V* t) {
  t[0] = d[4] - kSum * d[2] + kProduct * d[0];
  V even = d[4] - kB2 * d[2], odd = kA * (d[3] - kB2 * d[1]);
  t[1] = even + odd;
  t[2] = even - odd;
  even = d[4] - kA2 * d[2];
  odd = kB * (d[3] - kA2 * d[1]);
  t[3] = even + odd;
  t[4] = even - odd;
  t[5] = d[5] - kSum * d[3] + kProduct * d[1];
}

/// t = G g: 3 taps.
template <class V>
[[gnu::always_inline]] inline void transform_weights(const V* g, V* t) {
  constexpr float for_a = 1 / (2 * kA2 * (kA2 - kB2)), for_b = 1 / (2 * kB2 * (kB2 - kA2));
  t[0] = (1 / kProduct) * g[0];
  V even = for_a * g[0] + (for_a * kA2) * g[2], odd = (for_a * kA) * g[1];
  t[1] = even + odd;
  t[2] = even - odd;
  even = for_b * g[0] + (for_b * kB2) * g[2];
  odd = (for_b * kB) * g[1];
  t[3] = even + odd;
  t[4] = even - odd;
  t[5] = g[2];
}

/// g = G^T t.
template <class V>
[[gnu::always_inline]] inline void weights_back(const V* t, V* g) {
  constexpr float for_a = 1 / (2 * kA2 * (kA2 - kB2)), for_b = 1 / (2 * kB2 * (kB2 - kA2));
  const V a_even = for_a * (t[1] + t[2]), b_even = for_b * (t[3] + t[4]);
  g[0] = (1 / kProduct) * t[0] + a_even + b_even;
  g[1] = (for_a * kA) * (t[1] - t[2]) + (for_b * kB) * (t[3] - t[4]);
  g[2] = kA2 * a_even + kB2 * b_even + t[5];
}

/// y = A^T t: 4 pixels of y.
template <class V>
[[gnu::always_inline]] inline void output_back(const V* t, V* y) {
  const V a_even = t[1] + t[2], a_odd = kA * (t[1] - t[2]), b_even = t[3] + t[4], b_odd = kB * (t[3] - t[4]);
  y[0] = t[0] + a_even + b_even;
  y[1] = a_odd + b_odd;
  y[2] = kA2 * a_even + kB2 * b_even;
  y[3] = kA2 * a_odd + kB2 * b_odd + t[5];
}

/// t = A y.
template <class V>
[[gnu::always_inline]] inline void transform_output(const V* y, V* t) {
  t[0] = y[0];
  V even = y[0] + kA2 * y[2], odd = kA * (y[1] + kA2 * y[3]);
  t[1] = even + odd;
  t[2] = even - odd;
  even = y[0] + kB2 * y[2];
  odd = kB * (y[1] + kB2 * y[3]);
  t[3] = even + odd;
  t[4] = even - odd;
  t[5] = y[3];
}

/// Factors of a product: that of a row and a step lies at data[row * row + step * step].
struct Factors {
  const float* data;
  std::int64_t row, step;
};

/// m [R][Q*B] = or += the sum over `steps` of a(row, step) * u[step * u_stride + lane]. The sums stay in registers.
template <int B, int Q, int R, bool add>
void multiply(Factors a, const float* u, std::int64_t u_stride, int steps, float* m, std::int64_t m_stride) {
  using V = Vector<B>;
  V sum[R][Q];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int q = 0; q < Q; ++q) sum[r][q] = V{};
#pragma GCC unroll 2
  for (int i = 0; i < steps; ++i) {
    V lanes[Q];
#pragma GCC unroll 2
    for (int q = 0; q < Q; ++q) lanes[q] = at<B>(u + i * u_stride + q * B);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float factor = a.data[r * a.row + i * a.step];
#pragma GCC unroll 2
      for (int q = 0; q < Q; ++q) sum[r][q] += factor * lanes[q];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int q = 0; q < Q; ++q) {
      V& out = at<B>(m + r * m_stride + q * B);
      out = add ? out + sum[r][q] : sum[r][q];
    }
}

/// The same for any number of rows, as many at a time as fit into registers.
template <int B, int Q, int R = B == 16 ? 8 : 6>
void multiply_rows(int rows, Factors a, const float* u, std::int64_t u_stride, int steps, float* m,
                   std::int64_t m_stride, bool add) {
  if constexpr (R > 0) {
    const auto part = add ? multiply<B, Q, R, true> : multiply<B, Q, R, false>;
    int row = 0;
    for (; row + R <= rows; row += R)
      part({a.data + row * a.row, a.row, a.step}, u, u_stride, steps, m + row * m_stride, m_stride);
    if (row < rows)
      multiply_rows<B, Q, R - 1>(rows - row, {a.data + row * a.row, a.row, a.step}, u, u_stride, steps,
                                 m + row * m_stride, m_stride, add);
  }
}

/// One convolution with blocks of B channels, Q blocks of the result at a time.
template <int B, int Q>
class SimdWinograd final : public Winograd {
 public:
  using Winograd::Winograd;

  /// Each thread transforms what it needs by itself, which costs less than moving it from core to core.
  void run(const float* x, const float* packed, const Epilogue& epilogue, float* y, void* scratch) const override {
    const std::int64_t vs = x_stride(), us = u_stride(), ms = m_stride();
    auto* const whole = static_cast<float*>(scratch);
#pragma omp parallel num_threads(s.threads)
    {
      float* const v = whole + whole_weights() + omp_get_thread_num() * kPoints * (vs + ms + own_weights());
      float *const m = v + kPoints * vs, *const own = m + kPoints * ms;
      if (small_weights_) {
#pragma omp for collapse(2) schedule(static)
        for (int panel = 0; panel < panels; ++panel)
          for (int c = 0; c < s.c_in; ++c)
            load_weights(packed, c, panel, whole + panel * kPoints * us + std::int64_t{c} * kPanel, us);
      }
#pragma omp for collapse(2) schedule(static)
      for (int slice = 0; slice < slices(); ++slice)
        for (int team = 0; team < teams(); ++team) {
          const int end = part_of(tiles_, slice + 1, slices());
          for (int first = part_of(tiles_, slice, slices()); first < end; first += group_) {
            const int count = std::min(group_, end - first);
            load_tiles(x, first, count, 0, s.c_in, v, vs);
            for (int panel = part_of(panels, team, teams()); panel < part_of(panels, team + 1, teams()); ++panel) {
              for (int c = 0; c < s.c_in; c += chunk()) {
                const int some = std::min(chunk(), s.c_in - c);
                const float* const u = small_weights_ ? whole + panel * kPoints * us : own;
                if (!small_weights_)
                  for (int k = 0; k < some; ++k) load_weights(packed, c + k, panel, own + std::int64_t{k} * kPanel, us);
                for (int point = 0; point < kPoints; ++point)
                  multiply_rows<B, Q>(count, {v + point * vs + c, s.c_in, 1}, u + point * us, kPanel, some,
                                      m + point * ms, kPanel, c > 0);
              }
              for (int tile = 0; tile < count; ++tile)
                for (int q = 0; q < Q; ++q)
                  store_tile(m + std::int64_t{tile} * kPanel + q * B, ms, first + tile, panel * kPanel + q * B,
                             epilogue, y);
            }
          }
        }
    }
  }
  [[nodiscard]] std::size_t scratch_bytes() const override {
    const std::int64_t floats = whole_weights() + s.threads * kPoints * (x_stride() + m_stride() + own_weights());
    return static_cast<std::size_t>(floats) * sizeof(float);
  }
  void weight_gradient(const float* x, const float* dy, float* dw, bool accumulate, void* scratch) const override {
    sum_weight_gradient(x, dy, dw, accumulate, static_cast<float*>(scratch));
  }
  [[nodiscard]] std::size_t gradient_scratch_bytes() const override {
    const Part p = part();
    const std::int64_t floats = s.threads * (std::int64_t{kSteps} * (p.inputs + p.rows) + 2 * kSkew + sum_stride(p));
    return static_cast<std::size_t>(kPoints * floats) * sizeof(float);
  }

 private:
  using V = Vector<B>;
  static constexpr int kPanel = Q * B;

  const Spec& s = spec_;
  int panels = s.c_out / kPanel;

  struct Place {
    int n, y, x;  ///< sample, first row and column of the tile's result
  };
  [[nodiscard]] Place place(int tile) const {
    const int in_sample = tile % (tiles_high_ * tiles_wide_);
    return {tile / (tiles_high_ * tiles_wide_), in_sample / tiles_wide_ * kOut, in_sample % tiles_wide_ * kOut};
  }
  [[nodiscard]] std::int64_t plane(int n, int c, int channels) const {
    return (std::int64_t{n} * (channels / B) + c / B) * s.h * s.w * B;
  }

  /// to[point * stride] = B^T d B of the channels c to c + B - 1.
  void load_tile(const float* x, int tile, int c, float* to, std::int64_t stride) const {
    const Place p = place(tile);
    const float* from = x + plane(p.n, c, s.c_in);
    V columns[kIn][kIn];
#pragma GCC unroll 6
    for (int j = 0; j < kIn; ++j) {
      const int column = p.x + j - 1;
      V d[kIn] = {};
      if (column >= 0 && column < s.w)
#pragma GCC unroll 6
        for (int i = 0; i < kIn; ++i) {
          const int row = p.y + i - 1;
          if (row >= 0 && row < s.h) d[i] = at<B>(from + (std::int64_t{row} * s.w + column) * B);
        }
      transform_input(d, columns[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      V d[kIn], t[kIn];
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) d[j] = columns[j][i];
      transform_input(d, t);
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) at<B>(to + (i * kIn + j) * stride) = t[j];
    }
  }

  /// The same for some tiles: to[point * stride][tile][channel].
  void load_tiles(const float* x, int first, int count, int c, int channels, float* to, std::int64_t stride) const {
    for (int tile = 0; tile < count; ++tile)
      for (int channel = 0; channel < channels; channel += B)
        load_tile(x, first + tile, c + channel, to + std::int64_t{tile} * channels + channel, stride);
  }

  /// to[point * stride] = A dy A^T of the channels c to c + B - 1.
  void load_gradient(const float* dy, int tile, int c, float* to, std::int64_t stride) const {
    const Place p = place(tile);
    const float* from = dy + plane(p.n, c, s.c_out);
    V columns[kOut][kIn];
#pragma GCC unroll 4
    for (int j = 0; j < kOut; ++j) {
      V d[kOut] = {};
      if (p.x + j < s.w)
#pragma GCC unroll 4
        for (int i = 0; i < kOut; ++i)
          if (p.y + i < s.h) d[i] = at<B>(from + (std::int64_t{p.y + i} * s.w + p.x + j) * B);
      transform_output(d, columns[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      V d[kOut], t[kIn];
#pragma GCC unroll 4
      for (int j = 0; j < kOut; ++j) d[j] = columns[j][i];
      transform_output(d, t);
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) at<B>(to + (i * kIn + j) * stride) = t[j];
    }
  }

  /// The channels k to k + B - 1 of the tile's result: A^T m A, then the epilogue.
  void store_tile(const float* m, std::int64_t stride, int tile, int k, const Epilogue& epilogue, float* y) const {
    const Place p = place(tile);
    V rows[kIn][kOut];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      V t[kIn];
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) t[j] = at<B>(m + (i * kIn + j) * stride);
      output_back(t, rows[i]);
    }
    const V bias = epilogue.bias != nullptr ? at<B>(epilogue.bias + k) : V{};
    const std::int64_t begin = plane(p.n, k, s.c_out);
#pragma GCC unroll 4
    for (int j = 0; j < kOut; ++j) {
      if (p.x + j >= s.w) break;
      V t[kIn], out[kOut];
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) t[i] = rows[i][j];
      output_back(t, out);
#pragma GCC unroll 4
      for (int i = 0; i < kOut; ++i) {
        if (p.y + i >= s.h) break;
        const std::int64_t pixel = begin + (std::int64_t{p.y + i} * s.w + p.x + j) * B;
        V value = out[i] + bias;
        if (epilogue.accumulate) value += at<B>(y + pixel);
        if (epilogue.relu) value = value > 0 ? value : V{};
        at<B>(y + pixel) = value;
        if constexpr (B == 16)
          if (epilogue.bits != nullptr) epilogue.bits[pixel / B] = positive(value);
      }
    }
  }
  [[nodiscard]] static std::uint16_t positive(const V& value) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_GT_OQ);
#else
    std::uint32_t bits = 0;
    for (int j = 0; j < B; ++j) bits |= value[j] > 0 ? 1U << j : 0U;
    return static_cast<std::uint16_t>(bits);
#endif
  }

  /// Transformed weights of one input channel and one panel of output channels: to[point * stride][kPanel].
  void load_weights(const float* packed, int c, int panel, float* to, std::int64_t stride) const {
    for (int q = 0; q < Q; ++q) {
      const float* from = packed + std::int64_t{c} * kTaps * s.c_out + panel * kPanel + q * B;
      V columns[3][kIn];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        V g[3];
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) g[i] = at<B>(from + std::int64_t{i * 3 + j} * s.c_out);
        transform_weights(g, columns[j]);
      }
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) {
        V g[3], t[kIn];
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) g[j] = columns[j][i];
        transform_weights(g, t);
#pragma GCC unroll 6
        for (int j = 0; j < kIn; ++j) at<B>(to + (i * kIn + j) * stride + q * B) = t[j];
      }
    }
  }

  /// Floats between two points of: tiles of x, a panel of y, transformed weights of a panel.
  [[nodiscard]] std::int64_t x_stride() const { return std::int64_t{group_} * s.c_in + kSkew; }
  [[nodiscard]] std::int64_t m_stride() const { return std::int64_t{group_} * kPanel + kSkew; }
  [[nodiscard]] std::int64_t u_stride() const { return std::int64_t{chunk()} * kPanel + kSkew; }
  [[nodiscard]] int chunk() const { return small_weights_ ? s.c_in : std::min(kChunk, s.c_in); }
  /// Floats of transformed weights: of all panels, or of one, for a thread.
  [[nodiscard]] std::int64_t whole_weights() const { return small_weights_ ? panels * kPoints * u_stride() : 0; }
  [[nodiscard]] std::int64_t own_weights() const { return small_weights_ ? 0 : u_stride(); }

  /// Threads divide the tiles where the weights are small; else the panels, and the tiles where panels are too few.
  [[nodiscard]] int slices() const { return small_weights_ ? s.threads : (s.threads + panels - 1) / panels; }
  [[nodiscard]] int teams() const { return s.threads / slices(); }
  [[nodiscard]] static int part_of(int all, int part, int parts) {
    return static_cast<int>(std::int64_t{all} * part / parts);
  }

  /// One thread's part of the weight gradient.
  struct Part {
    int rows, inputs;  ///< channels of y, of x
  };
  [[nodiscard]] Part part() const {
    const auto half = [](int size, int unit) { return (size / 2 + unit - 1) / unit * unit; };
    Part p{std::min(128, s.c_out), std::min(64, s.c_in)};
    while (parts(p.rows, s.c_out) * parts(p.inputs, s.c_in) < s.threads && (p.rows > B || p.inputs > kPanel))
      if (p.rows >= p.inputs && p.rows > B)
        p.rows = half(p.rows, B);
      else
        p.inputs = half(p.inputs, kPanel);
    return p;
  }
  [[nodiscard]] static int parts(int size, int all) { return (all + size - 1) / size; }
  /// Tiles at a time: the sums are read and written once for each of these groups.
  static constexpr int kSteps = 64;
  [[nodiscard]] std::int64_t sum_stride(Part p) const { return std::int64_t{p.rows} * p.inputs + kSkew; }

  void sum_weight_gradient(const float* x, const float* dy, float* dw, bool accumulate, float* scratch) const {
    const Part p = part();
    const std::int64_t vs = std::int64_t{kSteps} * p.inputs + kSkew, zs = std::int64_t{kSteps} * p.rows + kSkew,
                       ss = sum_stride(p);
#pragma omp parallel for collapse(2) schedule(static) num_threads(s.threads)
    for (int k = 0; k < s.c_out; k += p.rows)
      for (int c = 0; c < s.c_in; c += p.inputs) {
        float* const v = scratch + omp_get_thread_num() * kPoints * (vs + zs + ss);
        float *const z = v + kPoints * vs, *const sum = z + kPoints * zs;
        const int rows = std::min(p.rows, s.c_out - k), inputs = std::min(p.inputs, s.c_in - c);
        for (int first = 0; first < tiles_; first += kSteps) {
          const int count = std::min(kSteps, tiles_ - first);
          load_tiles(x, first, count, c, inputs, v, vs);
          for (int tile = 0; tile < count; ++tile)
            for (int row = 0; row < rows; row += B)
              load_gradient(dy, first + tile, k + row, z + std::int64_t{tile} * rows + row, zs);
          for (int point = 0; point < kPoints; ++point)
            for (int input = 0; input < inputs; input += kPanel)
              multiply_rows<B, Q>(rows, {z + point * zs, 1, rows}, v + point * vs + input, inputs, count,
                                  sum + point * ss + input, inputs, first > 0);
        }
        for (int row = 0; row < rows; ++row)
          for (int input = 0; input < inputs; input += B)
            store_weights(sum + std::int64_t{row} * inputs + input, ss,
                          dw + std::int64_t{k + row} * kTaps * s.c_in + c + input, accumulate);
      }
  }

  /// dw [tap * c_in] = or += G^T sum G.
  void store_weights(const float* sum, std::int64_t stride, float* dw, bool accumulate) const {
    V rows[kIn][3];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      V t[kIn];
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) t[j] = at<B>(sum + (i * kIn + j) * stride);
      weights_back(t, rows[i]);
    }
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      V t[kIn], g[3];
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) t[i] = rows[i][j];
      weights_back(t, g);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        V& out = at<B>(dw + std::int64_t{i * 3 + j} * s.c_in);
        out = accumulate ? out + g[i] : g[i];
      }
    }
  }
};

/// With two blocks of channels at a time where they allow it.
template <int B>
[[nodiscard]] std::unique_ptr<Winograd> make_simd_winograd(const Winograd::Spec& spec) {
  if (spec.c_in % (2 * B) == 0 && spec.c_out % (2 * B) == 0) return std::make_unique<SimdWinograd<B, 2>>(spec);
  return std::make_unique<SimdWinograd<B, 1>>(spec);
}

}  // namespace

}  // namespace dat::cpu
