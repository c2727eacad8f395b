#pragma once

// Winograd's algorithm in the compiler's vector types; included once for each instruction set.

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "backend/cpu/convolution3x3.hpp"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace dat::cpu {

namespace {

/// Channels of one product at a time: so many transformed weights stay in the L2 cache. Their products are summed
/// first, which also halves the rounding errors at 512 channels.
constexpr int kChunk = 128;
/// Size of the transformed weights up to which they are kept whole, and tiles of x in a part of an L2 cache beside
/// them. Larger ones are transformed in pieces that fit, and tiles of x lie in the L3 cache.
constexpr std::int64_t kSmallWeights = 3 << 20, kTileBytes = 300'000, kManyTileBytes = 5'000'000;
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

// The three transformations in one dimension; in two, they apply to columns and then to rows. Each turns kIn pixels of
// x into kPoints numbers (`input`: B^T x), three taps into kWeights (`weights`: G g), of which that of a point is
// `weight(point)`, and the products of both into kOut pixels of y (`output`: A^T m). The weight gradient needs A y
// (`gradient`) and G^T u (`taps`). Tile t begins at pixel t*kInStep + kInFirst of x and at pixel t*kOut of y.

constexpr int kWeights = 6;

/// Part of the transforms that the points a, -a, b, -b and infinity share, whatever other points there are: 5 numbers.
template <class Points>
struct Symmetric {
  static constexpr float a = Points::a, b = Points::b, a2 = a * a, b2 = b * b;

  template <class V>
  [[gnu::always_inline]] static void input(const V& x0, const V& x1, const V& x2, const V& x3, const V& x4, V* t) {
    V even = x3 - b2 * x1, odd = a * (x2 - b2 * x0);
    t[0] = even + odd;
    t[1] = even - odd;
    even = x3 - a2 * x1;
    odd = b * (x2 - a2 * x0);
    t[2] = even + odd;
    t[3] = even - odd;
    t[4] = x4 - (a2 + b2) * x2 + (a2 * b2) * x0;
  }
  template <class V>
  [[gnu::always_inline]] static void output(const V* m, V* y) {
    const V a_even = m[0] + m[1], a_odd = a * (m[0] - m[1]), b_even = m[2] + m[3], b_odd = b * (m[2] - m[3]);
    y[0] = a_even + b_even;
    y[1] = a_odd + b_odd;
    y[2] = a2 * a_even + b2 * b_even;
    y[3] = a2 * a_odd + b2 * b_odd + m[4];
  }
  template <class V>
  [[gnu::always_inline]] static void gradient(const V* y, V* t) {
    V even = y[0] + a2 * y[2], odd = a * (y[1] + a2 * y[3]);
    t[0] = even + odd;
    t[1] = even - odd;
    even = y[0] + b2 * y[2];
    odd = b * (y[1] + b2 * y[3]);
    t[2] = even + odd;
    t[3] = even - odd;
    t[4] = y[3];
  }
};

struct SamePoints {
  static constexpr float a = 0.625F, b = 1.5F;
};

/// Stride 1: F(4, 3) for the points 0, a, -a, b, -b and infinity. Lavin and Gray (section 4.3) have 1 and 2 for a and
/// b; with 5/8 and 3/2 the error is half as large (docs/performance.md).
struct Same : Symmetric<SamePoints> {
  using Rest = Symmetric<SamePoints>;
  static constexpr bool kWeightGradient = true;
  static constexpr int kIn = 6, kPoints = 6, kOut = 4, kInStep = 4, kInFirst = -1;
  static constexpr float for_0 = 1 / (a2 * b2), for_a = 1 / (2 * a2 * (a2 - b2)), for_b = 1 / (2 * b2 * (b2 - a2));
  static constexpr int weight(int point) { return point; }

  template <class V>
  [[gnu::always_inline]] static void input(const V* x, V* t) {
    t[0] = x[4] - (a2 + b2) * x[2] + (a2 * b2) * x[0];
    Rest::input(x[1], x[2], x[3], x[4], x[5], t + 1);
  }
  template <class V>
  [[gnu::always_inline]] static void weights(const V* g, V* u) {
    u[0] = for_0 * g[0];
    V even = for_a * g[0] + (for_a * a2) * g[2], odd = (for_a * a) * g[1];
    u[1] = even + odd;
    u[2] = even - odd;
    even = for_b * g[0] + (for_b * b2) * g[2];
    odd = (for_b * b) * g[1];
    u[3] = even + odd;
    u[4] = even - odd;
    u[5] = g[2];
  }
  template <class V>
  [[gnu::always_inline]] static void taps(const V* u, V* g) {
    const V a_even = for_a * (u[1] + u[2]), b_even = for_b * (u[3] + u[4]);
    g[0] = for_0 * u[0] + a_even + b_even;
    g[1] = (for_a * a) * (u[1] - u[2]) + (for_b * b) * (u[3] - u[4]);
    g[2] = a2 * a_even + b2 * b_even + u[5];
  }
  template <class V>
  [[gnu::always_inline]] static void output(const V* m, V* y) {
    Rest::output(m + 1, y);
    y[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
  }
  template <class V>
  [[gnu::always_inline]] static void gradient(const V* y, V* t) {
    t[0] = y[0];
    Rest::gradient(y, t + 1);
  }
};

struct PairPoints {
  static constexpr float a = 0.375F, b = 1.25F;
};

/// F(4, 2) for the points a, -a, b, -b and infinity: 4 sums of two neighbours by 5 products. The points take the outer
/// taps; the sixth weight is the middle tap, by which the 4 points from 5 on are multiplied as they are.
struct Pairs : Symmetric<PairPoints> {
  static constexpr int kPoints = 9;
  static constexpr float for_a = 1 / (2 * a * (a2 - b2)), for_b = 1 / (2 * b * (b2 - a2));
  static constexpr int weight(int point) { return point < 5 ? point : 5; }

  template <class V>
  [[gnu::always_inline]] static void weights(const V* g, V* u) {
    V even = for_a * g[0], odd = (for_a * a) * g[2];
    u[0] = even + odd;
    u[1] = odd - even;
    even = for_b * g[0];
    odd = (for_b * b) * g[2];
    u[2] = even + odd;
    u[3] = odd - even;
    u[4] = g[2];
    u[5] = g[1];
  }
  template <class V>
  [[gnu::always_inline]] static void taps(const V* u, V* g) {
    g[0] = for_a * (u[0] - u[1]) + for_b * (u[2] - u[3]);
    g[1] = u[5];
    g[2] = (for_a * a) * (u[0] + u[1]) + (for_b * b) * (u[2] + u[3]) + u[4];
  }
};

/// Stride 2. The outer taps meet every second pixel and its next but one, the middle tap the pixels between: pairs, and
/// 4 products as they are (Huang et al., "DWM: A Decomposable Winograd Method for Convolution Acceleration", AAAI 2020,
/// has this split).
struct Down : Pairs {
  static constexpr bool kWeightGradient = true;
  static constexpr int kIn = 9, kOut = 4, kInStep = 8, kInFirst = -1;

  template <class V>
  [[gnu::always_inline]] static void input(const V* x, V* t) {
    Pairs::input(x[0], x[2], x[4], x[6], x[8], t);
    for (int i = 0; i < 4; ++i) t[5 + i] = x[2 * i + 1];
  }
  template <class V>
  [[gnu::always_inline]] static void output(const V* m, V* y) {
    Pairs::output(m, y);
    for (int i = 0; i < 4; ++i) y[i] += m[5 + i];
  }
  template <class V>
  [[gnu::always_inline]] static void gradient(const V* y, V* t) {
    Pairs::gradient(y, t);
    for (int i = 0; i < 4; ++i) t[5 + i] = y[i];
  }
};

/// The input gradient of stride 2, as a convolution of dy with turned taps: every second pixel of the result comes from
/// a pair, the ones between from the middle tap alone.
struct Up : Pairs {
  static constexpr bool kWeightGradient = false;
  static constexpr int kIn = 5, kOut = 8, kInStep = 4, kInFirst = 0;

  template <class V>
  [[gnu::always_inline]] static void input(const V* x, V* t) {
    Pairs::input(x[0], x[1], x[2], x[3], x[4], t);
    for (int i = 0; i < 4; ++i) t[5 + i] = x[i];
  }
  template <class V>
  [[gnu::always_inline]] static void output(const V* m, V* y) {
    V odd[4];
    Pairs::output(m, odd);
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = m[5 + i];
      y[2 * i + 1] = odd[i];
    }
  }
};

/// Factors of a product: the factor of a row and a step lies at data[row * row + step * step].
struct Factors {
  const float* data;
  std::int64_t row, step;
};

/// m [R][Q*B] = or += the sum over `steps` of a(row, step) * u[step * u_stride + lane]. The sums stay in registers.
template <int B, int Q, int R, bool add>
[[gnu::always_inline]] inline void multiply(Factors a, const float* u, std::int64_t u_stride, int steps, float* m,
                                            std::int64_t m_stride) {
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

/// Computes m as above for any number of rows, as many at a time as fit into registers.
template <int B, int Q, bool add, int R = B == 16 ? 8 : 6>
void multiply_rows(int rows, Factors a, const float* u, std::int64_t u_stride, int steps, float* m,
                   std::int64_t m_stride) {
  if constexpr (R > 0) {
    for (; rows >= R; rows -= R, a.data += R * a.row, m += R * m_stride)
      multiply<B, Q, R, add>(a, u, u_stride, steps, m, m_stride);
    if (rows > 0) multiply_rows<B, Q, add, R - 1>(rows, a, u, u_stride, steps, m, m_stride);
  }
}

/// A convolution by Winograd's algorithm: F(4x4, 3x3), a quarter of the multiplications of the definition (Lavin and
/// Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4), or for stride 2, F(4x4, 2x2) with
/// parts of smaller kernels, 81 of 144. Tiles of x and the weights are transformed, a matrix product [tiles, c_in] *
/// [c_in, c_out] for each point follows, and their results are transformed back to tiles of y, in groups that fit into
/// the caches. Blocks have B channels; Q blocks of the result are made at a time.
template <class Scheme, int B, int Q>
class SimdWinograd final : public Convolution3x3 {
 public:
  using Convolution3x3::Convolution3x3;

  [[nodiscard]] std::string name() const override {
    return s.kind == Kind::same ? "Winograd F(4x4, 3x3)" : "Winograd F(4x4, 2x2)";
  }

  /// Each thread transforms what it needs by itself, which costs less than moving it from core to core.
  void run(const Input& x, const float* packed, const Epilogue& epilogue, float* y, void* scratch) const override {
    const std::int64_t vs = x_stride(), us = u_stride(), ms = m_stride();
    const int tiles = x.samples * tiles_high_ * tiles_wide_;
    auto* const floats = static_cast<float*>(scratch);
    const float* const whole = transformed() ? packed + plain_size_ : floats;
#pragma omp parallel num_threads(s.threads)
    {
      float* const v = floats + shared_floats() + omp_get_thread_num() * own_floats();
      float *const m = v + kPoints * vs, *const own = m + kPoints * ms;
      if (small_weights_ && !transformed()) load_all_weights(packed, floats);
#pragma omp for collapse(2) schedule(static)
      for (int slice = 0; slice < slices_; ++slice)
        for (int team = 0; team < teams_; ++team) {
          Input read = x;
          if (team > 0) read.positive = nullptr;  // one thread writes
          const int end = part_of(tiles, slice + 1, slices_);
          for (int first = part_of(tiles, slice, slices_); first < end; first += group_) {
            const int count = std::min(group_, end - first);
            if (x.scale != nullptr)
              load_tiles<true>(read, first, count, 0, s.c_in, v, vs);
            else
              load_tiles(read, first, count, 0, s.c_in, v, vs);
            for (int panel = part_of(panels, team, teams_); panel < part_of(panels, team + 1, teams_); ++panel) {
              for (int c = 0; c < s.c_in; c += chunk()) {
                const int some = std::min(chunk(), s.c_in - c);
                const float* const u = small_weights_ ? whole + panel * kMatrices * us : own;
                const auto multiply = c > 0 ? multiply_rows<B, Q, true> : multiply_rows<B, Q, false>;
                if (!small_weights_)
                  for (int k = 0; k < some; ++k) load_weights(packed, c + k, panel, own + std::int64_t{k} * kPanel, us);
                for (int point = 0; point < kPoints; ++point)
                  multiply(count, {v + point * vs + c, s.c_in, 1}, u + matrix(point) * us, kPanel, some, m + point * ms,
                           kPanel);
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
    return static_cast<std::size_t>(shared_floats() + s.threads * own_floats()) * sizeof(float);
  }

  void weight_gradient(const float* x, const float* dy, float* dw, bool accumulate, void* scratch) const override {
    if constexpr (Scheme::kWeightGradient)
      sum_weight_gradient(x, dy, dw, accumulate, static_cast<float*>(scratch));
    else
      assert(!"the input gradient of stride 2 has no weight gradient");
  }
  [[nodiscard]] std::size_t gradient_scratch_bytes() const override {
    return static_cast<std::size_t>(s.threads * part_floats(gradient_part())) * sizeof(float);
  }

  [[nodiscard]] std::size_t weight_count() const override {
    return plain_size_ + (transformed() ? static_cast<std::size_t>(whole_weights()) : 0);
  }

 protected:
  void transform(float* packed) const override {
    if (!transformed()) return;
#pragma omp parallel num_threads(s.threads)
    load_all_weights(packed, packed + plain_size_);
  }

 private:
  using V = Vector<B>;
  static constexpr int kIn = Scheme::kIn, kOut = Scheme::kOut, kSide = Scheme::kPoints, kPoints = kSide * kSide;
  static constexpr int kMatrices = kWeights * kWeights, kPanel = Q * B;

  const Spec& s = spec_;
  const int panels = s.c_out / kPanel;
  const int tiles_high_ = (s.h_out + kOut - 1) / kOut, tiles_wide_ = (s.w_out + kOut - 1) / kOut;
  const int tiles_ = s.n * tiles_high_ * tiles_wide_;
  /// True: transformed weights are kept whole.
  const bool small_weights_ = std::int64_t{sizeof(float)} * kMatrices * s.c_in * s.c_out <= kSmallWeights;
  const int group_ = group();  ///< tiles that a thread transforms at a time
  const int slices_ = slices(), teams_ = s.threads / slices_;

  [[nodiscard]] int group() const {
    const std::int64_t tile = std::int64_t{sizeof(float)} * kPoints * s.c_in;
    const std::int64_t count = (small_weights_ ? kTileBytes : kManyTileBytes) / tile;
    return static_cast<int>(std::clamp<std::int64_t>(count / 8 * 8, 8, (tiles_ + 7) / 8 * 8));
  }

  /// The matrix of weights of a point.
  [[nodiscard]] static int matrix(int point) {
    return Scheme::weight(point / kSide) * kWeights + Scheme::weight(point % kSide);
  }

  struct Place {
    int n, y, x;  ///< sample, row and column of the tile among its tiles
  };
  [[nodiscard]] Place place(int tile) const {
    const int in_sample = tile % (tiles_high_ * tiles_wide_);
    return {tile / (tiles_high_ * tiles_wide_), in_sample / tiles_wide_, in_sample % tiles_wide_};
  }

  [[gnu::always_inline]] static V open(V value, [[maybe_unused]] const std::uint16_t* bits,
                                       [[maybe_unused]] std::int64_t pixel) {
#if defined(__AVX512F__)
    if constexpr (B == 16)
      if (bits != nullptr) return _mm512_maskz_mov_ps(bits[pixel], value);
#endif
    return value;
  }
  [[nodiscard]] static std::uint16_t positive([[maybe_unused]] V value) {
#if defined(__AVX512F__)
    if constexpr (B == 16) return _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_GT_OQ);
#endif
    return 0;
  }

  /// Transforms the channels c to c + B - 1: to[point * stride] = B^T x B.
  template <bool norm>
  void load_tile(const Input& x, int tile, int c, float* to, std::int64_t stride) const {
    const Place p = place(tile);
    const V scale = norm ? at<B>(x.scale + c) : V{}, shift = norm ? at<B>(x.shift + c) : V{};
    const int y0 = p.y * Scheme::kInStep + Scheme::kInFirst, x0 = p.x * Scheme::kInStep + Scheme::kInFirst;
    const std::int64_t begin = (std::int64_t{p.n} * (s.c_in / B) + c / B) * s.h * s.w;
    V columns[kIn][kSide];
#pragma GCC unroll 9
    for (int j = 0; j < kIn; ++j) {
      const int column = x0 + j;
      V d[kIn] = {};
      if (column >= 0 && column < s.w)
#pragma GCC unroll 9
        for (int i = 0; i < kIn; ++i) {
          const int row = y0 + i;
          const std::int64_t pixel = begin + std::int64_t{row} * s.w + column;
          if (row < 0 || row >= s.h) continue;
          if constexpr (norm) {
            const V value = at<B>(x.data + pixel * B) * scale + shift;
            d[i] = value > 0 ? value : V{};
            if (first_of(i) && first_of(j) && x.positive != nullptr) x.positive[pixel] = positive(value);
          } else {
            d[i] = open(at<B>(x.data + pixel * B), x.open, pixel);
          }
        }
      Scheme::input(d, columns[j]);
    }
#pragma GCC unroll 9
    for (int i = 0; i < kSide; ++i) {
      V d[kIn], t[kSide];
#pragma GCC unroll 9
      for (int j = 0; j < kIn; ++j) d[j] = columns[j][i];
      Scheme::input(d, t);
#pragma GCC unroll 9
      for (int j = 0; j < kSide; ++j) at<B>(to + (i * kSide + j) * stride) = t[j];
    }
  }

  /// Returns whether a row or column of a tile of x belongs to no earlier tile: tiles overlap.
  [[nodiscard]] static constexpr bool first_of(int k) {
    return k >= -Scheme::kInFirst && k < Scheme::kInStep - Scheme::kInFirst;
  }

  /// Loads some tiles at once: to[point * stride][tile][channel].
  template <bool norm = false>
  void load_tiles(const Input& x, int first, int count, int c, int channels, float* to, std::int64_t stride) const {
    for (int tile = 0; tile < count; ++tile)
      for (int channel = 0; channel < channels; channel += B)
        load_tile<norm>(x, first + tile, c + channel, to + std::int64_t{tile} * channels + channel, stride);
  }

  /// Transforms the channels c to c + B - 1: to[point * stride] = A dy A^T.
  void load_gradient(const float* dy, int tile, int c, float* to, std::int64_t stride) const {
    const Place p = place(tile);
    const float* from = dy + (std::int64_t{p.n} * (s.c_out / B) + c / B) * s.h_out * s.w_out * B;
    V columns[kOut][kSide];
#pragma GCC unroll 4
    for (int j = 0; j < kOut; ++j) {
      const int column = p.x * kOut + j;
      V d[kOut] = {};
      if (column < s.w_out)
#pragma GCC unroll 4
        for (int i = 0; i < kOut; ++i) {
          const int row = p.y * kOut + i;
          if (row < s.h_out) d[i] = at<B>(from + (std::int64_t{row} * s.w_out + column) * B);
        }
      Scheme::gradient(d, columns[j]);
    }
#pragma GCC unroll 9
    for (int i = 0; i < kSide; ++i) {
      V d[kOut], t[kSide];
#pragma GCC unroll 4
      for (int j = 0; j < kOut; ++j) d[j] = columns[j][i];
      Scheme::gradient(d, t);
#pragma GCC unroll 9
      for (int j = 0; j < kSide; ++j) at<B>(to + (i * kSide + j) * stride) = t[j];
    }
  }

  /// The channels k to k + B - 1 of the tile's result: A^T m A, then the epilogue.
  void store_tile(const float* m, std::int64_t stride, int tile, int k, const Epilogue& epilogue, float* y) const {
    const Place p = place(tile);
    V rows[kSide][kOut];
#pragma GCC unroll 9
    for (int i = 0; i < kSide; ++i) {
      V t[kSide];
#pragma GCC unroll 9
      for (int j = 0; j < kSide; ++j) t[j] = at<B>(m + (i * kSide + j) * stride);
      Scheme::output(t, rows[i]);
    }
    const V bias = epilogue.bias != nullptr ? at<B>(epilogue.bias + k) : V{};
    const std::int64_t begin = (std::int64_t{p.n} * (s.c_out / B) + k / B) * s.h_out * s.w_out;
#pragma GCC unroll 8
    for (int j = 0; j < kOut; ++j) {
      const int column = p.x * kOut + j;
      if (column >= s.w_out) break;
      V t[kSide], out[kOut];
#pragma GCC unroll 9
      for (int i = 0; i < kSide; ++i) t[i] = rows[i][j];
      Scheme::output(t, out);
#pragma GCC unroll 8
      for (int i = 0; i < kOut; ++i) {
        const int row = p.y * kOut + i;
        if (row >= s.h_out) break;
        const std::int64_t pixel = begin + std::int64_t{row} * s.w_out + column;
        V value = out[i] + bias;
        if (epilogue.accumulate) value += open(at<B>(y + pixel * B), epilogue.open, pixel);
        if (epilogue.relu) value = value > 0 ? value : V{};
        at<B>(y + pixel * B) = value;
        if (epilogue.bits != nullptr) epilogue.bits[pixel] = positive(value);
      }
    }
  }

  /// Transformed weights of one input channel and one panel of output channels: to[matrix * stride][kPanel].
  void load_weights(const float* packed, int c, int panel, float* to, std::int64_t stride) const {
    for (int q = 0; q < Q; ++q) {
      const float* from = packed + std::int64_t{c} * kTaps * s.c_out + panel * kPanel + q * B;
      V columns[3][kWeights];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        V g[3];
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) g[i] = at<B>(from + std::int64_t{i * 3 + j} * s.c_out);
        Scheme::weights(g, columns[j]);
      }
#pragma GCC unroll 6
      for (int i = 0; i < kWeights; ++i) {
        V g[3], u[kWeights];
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) g[j] = columns[j][i];
        Scheme::weights(g, u);
#pragma GCC unroll 6
        for (int j = 0; j < kWeights; ++j) at<B>(to + (i * kWeights + j) * stride + q * B) = u[j];
      }
    }
  }

  /// Transforms the weights of all panels, by all threads of a team, which wait for each other at the end.
  void load_all_weights(const float* packed, float* whole) const {
    const std::int64_t us = u_stride();
#pragma omp for collapse(2) schedule(static)
    for (int panel = 0; panel < panels; ++panel)
      for (int c = 0; c < s.c_in; ++c)
        load_weights(packed, c, panel, whole + panel * kMatrices * us + std::int64_t{c} * kPanel, us);
  }
  [[nodiscard]] bool transformed() const { return small_weights_ && s.frozen; }

  /// Floats between two points of: tiles of x, a panel of y, transformed weights of a panel.
  [[nodiscard]] std::int64_t x_stride() const { return std::int64_t{group_} * s.c_in + kSkew; }
  [[nodiscard]] std::int64_t m_stride() const { return std::int64_t{group_} * kPanel + kSkew; }
  [[nodiscard]] std::int64_t u_stride() const { return std::int64_t{chunk()} * kPanel + kSkew; }
  [[nodiscard]] int chunk() const { return small_weights_ ? s.c_in : std::min(kChunk, s.c_in); }
  /// Floats of the weights of all panels, where they are kept whole; of what threads share of the scratch, and of all
  /// that is a thread's own in it.
  [[nodiscard]] std::int64_t whole_weights() const { return small_weights_ ? panels * kMatrices * u_stride() : 0; }
  [[nodiscard]] std::int64_t shared_floats() const { return transformed() ? 0 : whole_weights(); }
  [[nodiscard]] std::int64_t own_floats() const {
    return kPoints * (x_stride() + m_stride()) + (small_weights_ ? 0 : kMatrices * u_stride());
  }

  /// Number of slices into which the threads divide the tiles. The threads of a slice divide the panels; each of them
  /// loads all tiles of the slice. Counted in vector operations for a block of channels of x; the two constants are of
  /// F(4x4, 3x3).
  [[nodiscard]] int slices() const {
    if (small_weights_) return s.threads;
    constexpr double kLoadTile = 170, kLoadWeights = 80;
    const auto cost = [&](int slices) {
      const int tiles = parts(slices, tiles_), outputs = parts(s.threads / slices, panels) * kPanel;
      return tiles * (double{kPoints} * outputs + kLoadTile) + parts(group_, tiles) * kLoadWeights * outputs;
    };
    int best = 1;
    for (int some = 2; some <= s.threads; ++some)
      if (cost(some) < cost(best)) best = some;
    return best;
  }

  [[nodiscard]] Part gradient_part() const { return part(B, kPanel, s.threads); }
  /// Tiles at a time: the sums are read and written once for each of these groups.
  static constexpr int kSteps = 64;
  /// Floats between two points of: tiles of x, tiles of y, the sums.
  [[nodiscard]] static std::int64_t inputs_stride(Part p) { return std::int64_t{kSteps} * p.inputs + kSkew; }
  [[nodiscard]] static std::int64_t rows_stride(Part p) { return std::int64_t{kSteps} * p.rows + kSkew; }
  [[nodiscard]] static std::int64_t sums_stride(Part p) { return std::int64_t{p.rows} * p.inputs + kSkew; }
  [[nodiscard]] static std::int64_t part_floats(Part p) {
    return kPoints * (inputs_stride(p) + rows_stride(p)) + kMatrices * sums_stride(p);
  }

  void sum_weight_gradient(const float* x, const float* dy, float* dw, bool accumulate, float* scratch) const {
    const Part p = gradient_part();
    const std::int64_t vs = inputs_stride(p), zs = rows_stride(p), ss = sums_stride(p);
#pragma omp parallel for collapse(2) schedule(static) num_threads(s.threads)
    for (int k = 0; k < s.c_out; k += p.rows)
      for (int c = 0; c < s.c_in; c += p.inputs) {
        float* const v = scratch + omp_get_thread_num() * part_floats(p);
        float *const z = v + kPoints * vs, *const sums = z + kPoints * zs;
        const int rows = std::min(p.rows, s.c_out - k), inputs = std::min(p.inputs, s.c_in - c);
        for (int first = 0; first < tiles_; first += kSteps) {
          const int count = std::min(kSteps, tiles_ - first);
          load_tiles({x, s.n}, first, count, c, inputs, v, vs);
          for (int tile = 0; tile < count; ++tile)
            for (int row = 0; row < rows; row += B)
              load_gradient(dy, first + tile, k + row, z + std::int64_t{tile} * rows + row, zs);
          bool begun[kMatrices] = {};  // several points may have one weight
          for (int point = 0; point < kPoints; ++point) {
            const bool add = std::exchange(begun[matrix(point)], true) || first > 0;
            for (int input = 0; input < inputs; input += kPanel)
              (add ? multiply_rows<B, Q, true> : multiply_rows<B, Q, false>)(rows, {z + point * zs, 1, rows},
                                                                             v + point * vs + input, inputs, count,
                                                                             sums + matrix(point) * ss + input, inputs);
          }
        }
        for (int row = 0; row < rows; ++row)
          for (int input = 0; input < inputs; input += B)
            store_weights(sums + std::int64_t{row} * inputs + input, ss,
                          dw + std::int64_t{k + row} * kTaps * s.c_in + c + input, accumulate);
      }
  }

  /// dw [tap * c_in] = or += G^T sums G.
  void store_weights(const float* sums, std::int64_t stride, float* dw, bool accumulate) const {
    V rows[kWeights][3];
#pragma GCC unroll 6
    for (int i = 0; i < kWeights; ++i) {
      V u[kWeights];
#pragma GCC unroll 6
      for (int j = 0; j < kWeights; ++j) u[j] = at<B>(sums + (i * kWeights + j) * stride);
      Scheme::taps(u, rows[i]);
    }
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      V u[kWeights], g[3];
#pragma GCC unroll 6
      for (int i = 0; i < kWeights; ++i) u[i] = rows[i][j];
      Scheme::taps(u, g);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        // Segments begin anywhere: no vector of its own may be assumed there.
        float* const out = dw + std::int64_t{i * 3 + j} * s.c_in;
        V before{};
        if (accumulate) std::memcpy(&before, out, sizeof before);
        const V sum = before + g[i];
        std::memcpy(out, &sum, sizeof sum);
      }
    }
  }
};

template <class Scheme, int B>
[[nodiscard]] std::unique_ptr<Convolution3x3> make_scheme(const Convolution3x3::Spec& spec) {
  // Two blocks of channels at a time where they allow it.
  if (spec.c_in % (2 * B) == 0 && spec.c_out % (2 * B) == 0) return std::make_unique<SimdWinograd<Scheme, B, 2>>(spec);
  return std::make_unique<SimdWinograd<Scheme, B, 1>>(spec);
}

template <int B>
[[nodiscard]] std::unique_ptr<Convolution3x3> make_simd_winograd(const Convolution3x3::Spec& spec) {
  using Kind = Convolution3x3::Kind;
  if (spec.kind == Kind::same) return make_scheme<Same, B>(spec);
  return spec.kind == Kind::down ? make_scheme<Down, B>(spec) : make_scheme<Up, B>(spec);
}

}  // namespace

}  // namespace dat::cpu
