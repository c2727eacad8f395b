#pragma once

#include <cmath>
#include <cstdint>

#include "dat/random.hpp"

namespace dat::kernels {

/// Normal number j, 0 to 3, of four random words, by Box and Muller: the first two are of words 0 and 1, the others of
/// words 2 and 3. The radius is sqrt(-2 ln(u + 2^-24)), the angle 2 pi u, u in [0, 1); the cosine comes first.
template <class T>
[[nodiscard]] DAT_HD inline T normal_number(const Philox4& words, int j) {
  const int pair = j / 2 * 2;
  const T radius = std::sqrt(T{-2} * std::log(T{uniform(words.v[pair])} + T(0x1p-24)));
  const T angle = T(6.283185307179586) * T{uniform(words.v[pair + 1])};
  return radius * (j % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

/// The natural logarithm of u in [2^-24, 1], to 1e-7 of itself, in plain arithmetic that becomes vector code. u is
/// 2^e (1 + x), 1 + x between sqrt(1/2) and sqrt(2), and ln(1 + x) = x - x^2/2 + x^3 p(x), where p is fitted at
/// Chebyshev's points (error of the sum below 1e-8).
[[nodiscard]] DAT_HD inline float natural_logarithm(float u) {
  constexpr std::uint32_t kSqrtHalf = 0x3F3504F3;  // its bits
  const std::uint32_t above = bits_of(u) - kSqrtHalf;
  const float x = with_bits((above & 0x7FFFFFU) + kSqrtHalf) - 1.0F;
  const auto e = static_cast<float>(static_cast<std::int32_t>(above) >> 23);
  float p = -0.0810156156F;
  p = p * x + 0.127123073F;
  p = p * x - 0.129722387F;
  p = p * x + 0.142021745F;
  p = p * x - 0.166422471F;
  p = p * x + 0.200014681F;
  p = p * x - 0.250002980F;
  p = p * x + 0.333333284F;
  return e * 0.693147181F + (x + x * x * (p * x - 0.5F));
}

struct Direction {
  float cosine, sine;
};
/// Cosine and sine of 2 pi t, t a multiple of 2^-24 in [0, 1), to 1e-7, in such arithmetic, too. t is q/4 + r, exactly,
/// |r| <= 1/8; the polynomials in r are fitted at Chebyshev's points (errors below 4e-9), and q turns them.
[[nodiscard]] DAT_HD inline Direction direction(float t) {
  const int q = static_cast<int>(4.0F * t + 0.5F);
  const float r = t - 0.25F * static_cast<float>(q), square = r * r;
  float s = -75.4028854F;
  s = s * square + 81.5925751F;
  s = s * square - 41.3416633F;
  s = s * square + 6.28318548F;
  s = s * r;
  float c = 59.4242210F;
  c = c * square - 85.4488220F;
  c = c * square + 64.9393692F;
  c = c * square - 19.7392082F;
  c = c * square + 1.0F;
  const bool odd = (q & 1) != 0;
  const float cosine = odd ? s : c, sine = odd ? c : s;
  return {((q + 1) & 2) != 0 ? -cosine : cosine, (q & 2) != 0 ? -sine : sine};
}

/// Random words of kRow indices side by side.
constexpr int kRow = 8;
struct WordRow {
  std::uint32_t v[4][kRow];
};
/// Column i: what random_words() says of index + i.
[[nodiscard]] DAT_HD inline WordRow random_word_row(std::uint64_t seed, Purpose purpose, std::uint32_t time,
                                                    std::uint64_t id, std::uint32_t index) {
  WordRow row;
  for (int i = 0; i < kRow; ++i) {
    const Philox4 counter = random_counter(purpose, time, id, index + static_cast<std::uint32_t>(i));
    for (int j = 0; j < 4; ++j) row.v[j][i] = counter.v[j];
  }
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kRow; ++i) {
      const Philox4 next = philox_round({{row.v[0][i], row.v[1][i], row.v[2][i], row.v[3][i]}}, key0, key1);
      for (int j = 0; j < 4; ++j) row.v[j][i] = next.v[j];
    }
    key0 += kPhiloxKey0;
    key1 += kPhiloxKey1;
  }
  return row;
}

/// The normal numbers of kRow groups of four words, normal_number()'s to 1e-6.
struct NormalRow {
  float z[4 * kRow];
};
[[nodiscard]] DAT_HD inline NormalRow normal_row(const WordRow& words) {
  NormalRow row;
  for (int pair = 0; pair < 4; pair += 2)
    for (int i = 0; i < kRow; ++i) {
      const float radius = std::sqrt(-2.0F * natural_logarithm(uniform(words.v[pair][i]) + 0x1p-24F));
      const Direction to = direction(uniform(words.v[pair + 1][i]));
      row.z[4 * i + pair] = radius * to.cosine;
      row.z[4 * i + pair + 1] = radius * to.sine;
    }
  return row;
}

}  // namespace dat::kernels
