#pragma once

// Products of f32 numbers by the tiles of AMX; included by the one file that is compiled for such processors.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace dat::cpu {

namespace {

// Tiles of AMX: 1 KB, 16 rows of 16 pairs of bf16 numbers. A product adds to a tile of 16 x 16 f32 numbers; the two of
// a pair are neighbours in the summed direction. The left factor has its rows in rows, the right one its columns in
// columns. A pair takes the place of one f32 number, so memory is counted in floats.

/// Floats of a vector, of a tile.
constexpr int kVector = 16, kTile = 256;

/// Sets up its thread's tiles while it lives.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    std::fill_n(config.row_bytes, 8, std::uint16_t{64});
    std::fill_n(config.rows, 8, std::uint8_t{16});
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/// f32 numbers as sums of bf16 numbers, each the nearest to what the ones before leave: in the upper halves of `bits`,
/// with anything in the lower ones.
template <int kParts>
struct Bf16Parts {
  [[gnu::always_inline]] explicit Bf16Parts(__m512 value) {
    bits[0] = rounded(value);
    if constexpr (kParts == 2)
      bits[1] = rounded(value - _mm512_castsi512_ps(_mm512_and_si512(bits[0], _mm512_set1_epi32(kUpper))));
  }
  __m512i bits[kParts];

 private:
  static constexpr int kUpper = static_cast<int>(0xffff0000U);
  [[gnu::always_inline]] static __m512i rounded(__m512 value) {
    return _mm512_add_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(0x8000));
  }
};

constexpr __mmask32 kFirsts = 0x55555555U, kSeconds = 0xaaaaaaaaU;

[[gnu::always_inline]] inline __m512i pairs(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(kSeconds, _mm512_srli_epi32(first, 16), second);
}

/// Transposes a matrix [16][16] of pairs.
[[gnu::always_inline]] inline void store_transposed(__m512i (&r)[16], float* to) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now r[4 g + j] has the columns j, 4 + j, 8 + j and 12 + j of the rows 4 g to 4 g + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    _mm512_store_si512(to + j * 16, _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88));
    _mm512_store_si512(to + (8 + j) * 16, _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd));
    _mm512_store_si512(to + (4 + j) * 16, _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88));
    _mm512_store_si512(to + (12 + j) * 16, _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd));
  }
}

/// The sums [R * 16][32] of a product in registers, R is 1 or 2. With two parts of each number, hi hi + hi lo + lo hi
/// is summed; lo lo is less than the error of the parts.
template <int kParts, int R>
class Sums {
 public:
  [[gnu::always_inline]] static void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  /// Loads from [R * 16][stride], of which 32 columns.
  [[gnu::always_inline]] static void load(const float* from, std::int64_t stride) {
    _tile_loadd(0, from, stride * 4);
    _tile_loadd(1, from + 16, stride * 4);
    if constexpr (R == 2) {
      _tile_loadd(2, from + 16 * stride, stride * 4);
      _tile_loadd(3, from + 16 * stride + 16, stride * 4);
    }
  }
  [[gnu::always_inline]] static void store(float* to, std::int64_t stride) {
    _tile_stored(0, to, stride * 4);
    _tile_stored(1, to + 16, stride * 4);
    if constexpr (R == 2) {
      _tile_stored(2, to + 16 * stride, stride * 4);
      _tile_stored(3, to + 16 * stride + 16, stride * 4);
    }
  }
  /// Adds a product of R tiles a, a_next apart, and two tiles b, b_next apart. The lower parts lie a_low and b_low
  /// after the higher ones.
  [[gnu::always_inline]] static void add(const float* a, std::int64_t a_next, std::int64_t a_low, const float* b,
                                         std::int64_t b_next, std::int64_t b_low) {
    right(b, b_next);
    if constexpr (kParts == 2) {
      left(a + a_low, a_next);
      multiply();
    }
    left(a, a_next);
    multiply();
    if constexpr (kParts == 2) {
      right(b + b_low, b_next);
      multiply();
    }
  }

 private:
  [[gnu::always_inline]] static void left(const float* a, std::int64_t next) {
    _tile_loadd(4, a, 64);
    if constexpr (R == 2) _tile_loadd(5, a + next, 64);
  }
  [[gnu::always_inline]] static void right(const float* b, std::int64_t next) {
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + next, 64);
  }
  [[gnu::always_inline]] static void multiply() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (R == 2) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
};

}  // namespace

}  // namespace dat::cpu
