#include "catch.hpp"
#include "dat/half.hpp"
#include "device.hpp"
#include "pointwise.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr int kPatterns = 1 << 16;

/// A 16-bit format by its definition: one sign, `exponent` bits, `mantissa` bits.
template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int exponent = 5, mantissa = 10;
};
template <>
struct Format<BFloat16> {
  static constexpr int exponent = 8, mantissa = 7;
};

template <class T>
constexpr int kInfinity = ((1 << Format<T>::exponent) - 1) << Format<T>::mantissa;

/// The number of a pattern without sign below or at infinity; infinity as the number that would come next, which is
/// what the rounding of IEEE 754 takes it for.
template <class T>
[[nodiscard]] double number(int pattern) {
  constexpr int m = Format<T>::mantissa, bias = (1 << (Format<T>::exponent - 1)) - 1;
  const int exponent = pattern >> m, fraction = pattern & ((1 << m) - 1);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias - m) : std::ldexp((1 << m) + fraction, exponent - bias - m);
}

/// All numbers without sign, and infinity: their places are their patterns.
template <class T>
[[nodiscard]] std::vector<double> numbers() {
  std::vector<double> all;
  for (int k = 0; k <= kInfinity<T>; ++k) all.push_back(number<T>(k));
  return all;
}

/// The pattern of the nearest number by search, of two equally near ones the even pattern.
template <class T>
[[nodiscard]] int nearest(const std::vector<double>& all, float x) {
  const double size = std::abs(double(x));
  const int sign = std::signbit(x) ? 0x8000 : 0;
  if (size >= all.back()) return sign | kInfinity<T>;
  const auto above = static_cast<int>(std::lower_bound(all.begin(), all.end(), size) - all.begin());
  if (above == 0) return sign;
  const double up = all[static_cast<std::size_t>(above)] - size, down = size - all[static_cast<std::size_t>(above) - 1];
  return sign | (up < down || (up == down && above % 2 == 0) ? above : above - 1);
}

/// What rounding may go wrong at: every number, every midpoint and their neighbours, the ends of float, and floats of
/// all sizes.
template <class T>
[[nodiscard]] std::vector<float> difficult(const std::vector<double>& all) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max(), infinity};
  for (std::size_t k = 0; k + 1 < all.size(); ++k)
    for (const double exact : {all[k], (all[k] + all[k + 1]) / 2}) {
      const auto v = static_cast<float>(exact);
      values.insert(values.end(), {v, std::nextafter(v, infinity), std::nextafter(v, 0.0F)});
    }
  std::mt19937 words(1);
  for (int k = 0; k < 200000; ++k) {
    const auto v = std::bit_cast<float>(static_cast<std::uint32_t>(words()));
    if (!std::isnan(v)) values.push_back(v);
  }
  // Uniform patterns are mostly beyond f16: as many within it.
  for (int k = 0; k < 200000; ++k)
    values.push_back(std::ldexp(1 + static_cast<float>(words() >> 8) * 0x1p-24F, static_cast<int>(words() % 44) - 27));
  const std::size_t positive = values.size();
  for (std::size_t k = 0; k < positive; ++k) values.push_back(-values[k]);
  return values;
}

[[nodiscard]] bool is_nan(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffU) > 0x7f800000U; }

/// A device converts in its own instructions. A pool over single pixels does nothing else.
constexpr Layout kPixel{1, 1, 1, 1};

}  // namespace

TEMPLATE_TEST_CASE("All 65536 patterns of 16 bits mean what their format says, and survive the way to float and back",
                   "[kernels]", Half, BFloat16) {
  using T = TestType;
  Shared<T> stored(kPatterns), back(kPatterns);
  Shared<float> widened(kPatterns);
  for (int k = 0; k < kPatterns; ++k) stored[static_cast<std::size_t>(k)] = {static_cast<std::uint16_t>(k)};
  run(kPatterns, kernels::PoolForward<T>{stored.data(), widened.data(), kPixel});
  run(kernels::groups(kPatterns), kernels::PoolBackward<T>{widened.data(), back.data(), kPixel, kPatterns});
  int wrong = 0, nans = 0;
  for (int k = 0; k < kPatterns; ++k) {
    const int size = k & 0x7fff;
    const float here = to_float(stored[static_cast<std::size_t>(k)]), there = widened[static_cast<std::size_t>(k)];
    const int here_back = Stored<T>::from(here).bits, there_back = back[static_cast<std::size_t>(k)].bits;
    if (size > kInfinity<T>) {
      ++nans;
      wrong += !is_nan(here) || !is_nan(there) || (here_back & 0x7fff) <= kInfinity<T> ||
               (there_back & 0x7fff) <= kInfinity<T>;
      continue;
    }
    const double exact =
        (k < 0x8000 ? 1 : -1) * (size == kInfinity<T> ? std::numeric_limits<double>::infinity() : number<T>(size));
    // The pool adds to zero, which takes the sign from -0.
    const int pooled = k == 0x8000 ? 0 : k;
    wrong += double(here) != exact || std::signbit(here) != (k >= 0x8000) || double(there) != exact || here_back != k ||
             there_back != pooled;
  }
  CHECK(wrong == 0);
  CHECK(nans == 2 * ((1 << Format<T>::mantissa) - 1));
}

TEMPLATE_TEST_CASE("A float is stored in 16 bits as the nearest number there, of two the even one", "[kernels]", Half,
                   BFloat16) {
  using T = TestType;
  const std::vector<double> all = numbers<T>();
  REQUIRE(std::is_sorted(all.begin(), all.end()));
  const std::vector<float> values = difficult<T>(all);
  const Shared<float> given = shared(values);
  Shared<T> stored(values.size());
  run(kernels::groups(std::ssize(values)),
      kernels::PoolBackward<T>{given.data(), stored.data(), kPixel, std::ssize(values)});
  std::int64_t wrong = 0, infinite = 0, subnormal = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const int expected = nearest<T>(all, values[k]);
    const int here = Stored<T>::from(values[k]).bits, there = stored[k].bits;
    infinite += (expected & 0x7fff) == kInfinity<T>;
    subnormal += (expected & 0x7fff) < 1 << Format<T>::mantissa;
    if (here == expected && there == expected) continue;
    if (wrong++ == 0)
      UNSCOPED_INFO("the first: " << std::hexfloat << values[k] << std::hex << " as " << here << " here, " << there
                                  << " on the device, " << expected << " expected");
  }
  CHECK(wrong == 0);
  // The ends of the range were among them.
  CHECK(infinite > 4);
  CHECK(subnormal > 2 << Format<T>::mantissa);
}

TEST_CASE("Numbers of the types take 4, 2, 2 and 1 bytes", "[kernels]") {
  for (const auto& [type, bytes] :
       {std::pair{DType::f32, 4U}, std::pair{DType::f16, 2U}, std::pair{DType::bf16, 2U}, std::pair{DType::u8, 1U}})
    CHECK(size_of(type) == bytes);
}

TEMPLATE_TEST_CASE("A NaN stays one when it is stored", "[kernels]", Half, BFloat16) {
  using T = TestType;
  // Payloads whose upper bits are zero must not end as infinity.
  for (const std::uint32_t bits : {0x7fc00000U, 0x7f800001U, 0xff800001U, 0x7f80ffffU, 0xffffffffU, 0x7fa00000U}) {
    const Shared<float> x = {std::bit_cast<float>(bits)};
    Shared<T> stored(1);
    run(1, kernels::PoolBackward<T>{x.data(), stored.data(), kPixel, 1});
    CHECK((stored[0].bits & 0x7fff) > kInfinity<T>);
    CHECK((Stored<T>::from(x[0]).bits & 0x7fff) > kInfinity<T>);
  }
}
