#include "smoothing/grid_noise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "dat/error.hpp"

namespace dat {

namespace {

__extension__ using Wide = unsigned __int128;

/// A number in [0, 2^64): an integer of 256 bits, of which 192 stand after the point. Limbs: the least first. Products
/// and quotients are cut, by less than 2^-190.
struct Fixed {
  std::array<std::uint64_t, 4> limbs{};

  friend bool operator==(const Fixed&, const Fixed&) = default;
  Fixed& operator+=(const Fixed& other) {
    Wide carry = 0;
    for (std::size_t i = 0; i < limbs.size(); ++i) {
      carry += limbs[i];
      carry += other.limbs[i];
      limbs[i] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    return *this;
  }
  Fixed& operator-=(const Fixed& other) {
    Wide borrow = 0;
    for (std::size_t i = 0; i < limbs.size(); ++i) {
      const Wide left = static_cast<Wide>(limbs[i]) - other.limbs[i] - borrow;
      limbs[i] = static_cast<std::uint64_t>(left);
      borrow = left >> 127;
    }
    return *this;
  }
};

[[nodiscard]] Fixed operator*(const Fixed& a, const Fixed& b) {
  std::array<std::uint64_t, 8> all{};
  for (std::size_t i = 0; i < a.limbs.size(); ++i) {
    Wide carry = 0;
    for (std::size_t j = 0; j < b.limbs.size(); ++j) {
      carry += static_cast<Wide>(a.limbs[i]) * b.limbs[j] + all[i + j];
      all[i + j] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    all[i + b.limbs.size()] = static_cast<std::uint64_t>(carry);
  }
  return {{all[3], all[4], all[5], all[6]}};
}

[[nodiscard]] Fixed operator/(Fixed a, std::uint64_t divisor) {
  Wide rest = 0;
  for (std::uint64_t& limb : std::views::reverse(a.limbs)) {
    rest = rest << 64 | limb;
    limb = static_cast<std::uint64_t>(rest / divisor);
    rest %= divisor;
  }
  return a;
}

/// numerator / (significand 2^exponent) as the double sigma is: exact but for the last bit.
[[nodiscard]] Fixed ratio(std::uint64_t numerator, double denominator) {
  int exponent{};
  const auto significand = static_cast<std::uint64_t>(std::ldexp(std::frexp(denominator, &exponent), 53));
  exponent -= 53;  // denominator = significand 2^exponent, exponent in [-63, -48]
  Fixed quotient;
  quotient.limbs.back() = numerator;
  quotient = quotient / significand;
  for (; exponent < 0; ++exponent) quotient += Fixed(quotient);
  return quotient;
}

/// 1 / sqrt(2 pi), cut after 192 bits: 0.398942280401432677939946059934381868475858631164934657665926
constexpr Fixed kDensity{{0xD3829F30512706D8, 0x3F2CF1402EAE38BF, 0x662114CF50D94234, 0}};
constexpr Fixed kHalf{{0, 0, std::uint64_t{1} << 63, 0}};

/// Point from which the tail is below 2^-65: 9.25.
constexpr Fixed kFar{{0, 0, std::uint64_t{1} << 62, 9}};

[[nodiscard]] bool at_least(const Fixed& a, const Fixed& b) {
  return !std::lexicographical_compare(a.limbs.rbegin(), a.limbs.rend(), b.limbs.rbegin(), b.limbs.rend());
}

/// P(Z > z), 0 < z < kFar, to 2^-110: 1/2 - (1/sqrt(2 pi)) sum of (-1)^k z^(2k+1) / (2^k k! (2k+1)).
[[nodiscard]] Fixed upper_tail(const Fixed& z) {
  const Fixed square = z * z / 2;
  Fixed power = z, added, taken;  // power = z (z^2/2)^k / k!
  for (std::uint64_t k = 0; power != Fixed{}; ++k) {
    (k % 2 == 0 ? added : taken) += power / (2 * k + 1);
    power = power / (k + 1) * square;
  }
  added -= taken;
  Fixed tail = kHalf;
  tail -= added * kDensity;
  return tail;
}

}  // namespace

bool integer_is_known(std::uint64_t behind) { return behind >> 24 != 0 && ~behind >> 24 != 0; }

GridNoise grid_noise(double sigma) {
  require(sigma >= 0x1p-10 && sigma <= 16, ExitCode::usage, "noise on the grid of pixels wants a sigma from 1/1024 to ",
          "16, in units of the pixels' range, not ", sigma);
  GridNoise noise;
  std::vector<std::uint64_t> below;  // entries of the lower half, from the middle outwards
  for (std::uint64_t j = 0; below.empty() || below.back() > 0; ++j) {
    const Fixed z = ratio(2 * j + 1, sigma) / 510;
    if (at_least(z, kFar)) {
      below.push_back(0);
      break;
    }
    const Fixed tail = upper_tail(z);
    // Limb 2 is the whole part of 2^64 times the tail.
    require(integer_is_known(tail.limbs[1]), ExitCode::integrity, "an entry of the table of noise for sigma ", sigma,
            " is not known to its last bit; take another sigma");
    below.push_back(tail.limbs[2]);
  }
  noise.half = static_cast<int>(below.size());
  noise.entries.assign(below.rbegin(), below.rend());
  for (const std::uint64_t entry : below) noise.entries.push_back(~entry);
  noise.guide.resize(1024);
  for (std::size_t place = 0; place < noise.guide.size(); ++place)
    noise.guide[place] = static_cast<std::int32_t>(
        std::ranges::lower_bound(noise.entries, static_cast<std::uint64_t>(place) << 54) - noise.entries.begin());
  const int c = std::max(1, static_cast<int>(std::floor(6 * sigma)));
  noise.low = -255 * c;
  noise.high = 255 * (c + 1);
  return noise;
}

}  // namespace dat
