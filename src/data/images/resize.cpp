#include "data/images/resize.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace dat {

namespace {

constexpr int kBits = 22;  // bits of a weight's fraction: eight more, and a sign, are a number of 32 bits
constexpr std::int32_t kHalf = 1 << (kBits - 1);

/// Weights of input pixels along one axis, times 2 max(from, to) of whole numbers: so they are equal on all machines.
struct Triangle {
  std::int64_t from, to;
  int output;
  /// Weight of input pixel x; none where it is not positive.
  [[nodiscard]] std::int64_t weight(std::int64_t x) const {
    return 2 * std::max(from, to) - std::abs((2 * x + 1) * to - (2 * output + 1) * from);
  }
  [[nodiscard]] int first() const {
    const std::int64_t below = (2 * output + 1) * from - 2 * std::max(from, to) - to;
    return below < 0 ? 0 : static_cast<int>(below / (2 * to) + 1);
  }
  [[nodiscard]] int end() const {
    const std::int64_t above = (2 * output + 1) * from + 2 * std::max(from, to) - to;
    return static_cast<int>(std::min(from, (above + 2 * to - 1) / (2 * to)));
  }
};

/// part/whole in units of 2^-kBits, rounded, halves up. The division of real numbers is faster, and as exact: a
/// quotient of wholes below 2^31 that is at most 2^kBits lies no nearer below a whole number than real numbers lie
/// there.
[[nodiscard]] std::int32_t share(std::int64_t part, std::int64_t whole) {
  return static_cast<std::int32_t>(static_cast<double>((part << kBits) + whole / 2) / static_cast<double>(whole));
}

using Words [[gnu::vector_size(32)]] = std::uint32_t;
constexpr Words kPlaces{0, 8, 16, 24, 0, 8, 16, 24};
using Bytes [[gnu::vector_size(32)]] = std::uint8_t;

std::uint8_t to_byte(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

}  // namespace

void Resizer::Axis::set(int from, int to, int begin, int outputs) {
  const auto n = static_cast<std::size_t>(outputs);
  first.resize(n);
  count.resize(n);
  int x = Triangle{from, to, begin}.first(), end = x;
  for (std::size_t k = 0; k < n; ++k) {
    const Triangle triangle{from, to, begin + static_cast<int>(k)};
    while (triangle.weight(x) <= 0) ++x;
    for (end = std::max(end, x); end < from && triangle.weight(end) > 0;) ++end;
    first[k] = x;
    count[k] = end - x;
  }
  taps = std::ranges::max(count);
  weights.assign(n * static_cast<std::size_t>(taps), 0);
  for (std::size_t k = 0; k < n; ++k) {
    const Triangle triangle{from, to, begin + static_cast<int>(k)};
    std::int64_t sum = 0;
    for (int t = 0; t < count[k]; ++t) sum += triangle.weight(first[k] + t);
    std::int32_t* const own = weights.data() + k * static_cast<std::size_t>(taps);
    for (int t = 0; t < count[k]; ++t) own[t] = share(triangle.weight(first[k] + t), sum);
  }
}

ImageWindow Resizer::needed(ImageShape from, ImageShape to, const ImageWindow& part) {
  const Triangle top{from.height, to.height, part.top}, bottom{from.height, to.height, part.top + part.height - 1},
      left{from.width, to.width, part.left}, right{from.width, to.width, part.left + part.width - 1};
  return {top.first(), left.first(), bottom.end() - top.first(), right.end() - left.first()};
}

void Resizer::resize(const std::uint8_t* in, ImageShape from, ImageShape to, const ImageWindow& part,
                     std::uint8_t* out) {
  const ImageWindow have = needed(from, to, part);
  rows_.set(from.height, to.height, part.top, part.height);
  columns_.set(from.width, to.width, part.left, part.width);
  const std::ptrdiff_t in_row = std::ptrdiff_t{3} * have.width, out_row = std::ptrdiff_t{3} * part.width,
                       between_row = out_row + 1;
  between_.resize(static_cast<std::size_t>(have.height * between_row));
  pairs_.assign(static_cast<std::size_t>(have.width + columns_.taps), Pair{});  // below weights of 0, too
  for (int y = 0; y < have.height; y += 2) {
    const std::uint8_t* const row = in + y * in_row;
    const std::ptrdiff_t next = y + 1 < have.height ? 1 : 0;  // the last row goes with itself
    pair_up(row, row + next * in_row, static_cast<std::size_t>(have.width));
    std::uint8_t* const to_row = between_.data() + y * between_row;
    along_rows(part.width, have.left, to_row, to_row + next * between_row);
  }
  for (int y = 0; y < part.height; ++y) {
    const auto k = static_cast<std::size_t>(y);
    down_columns(between_.data() + (rows_.first[k] - have.top) * between_row, between_row, rows_.of(y), rows_.count[k],
                 out + y * out_row, out_row);
  }
}

void Resizer::pair_up(const std::uint8_t* upper, const std::uint8_t* lower, std::size_t width) {
  const std::size_t last = width - 1;
  const auto pair = [&](std::size_t x, std::size_t bytes) {
    std::uint32_t low{}, high{};
    std::memcpy(&low, upper + 3 * x, bytes);
    std::memcpy(&high, lower + 3 * x, bytes);
    const Words both{low, low, low, low, high, high, high, high};
    pairs_[x] = reinterpret_cast<Pair>((both >> kPlaces) & 0xFFU);
  };
  for (std::size_t x = 0; x < last; ++x) pair(x, 4);  // the fourth, of the next pixel, counts nowhere
  pair(last, 3);
}

void Resizer::along_rows(int outputs, int left, std::uint8_t* upper, std::uint8_t* lower) const {
  for (int x = 0; x < outputs; ++x) {
    const auto k = static_cast<std::size_t>(x);
    const std::int32_t* const weights = columns_.of(x);
    const Pair* const pixels = pairs_.data() + (columns_.first[k] - left);
    Pair sums = Pair{} + kHalf;
    for (int t = 0; t < columns_.taps; ++t) sums += weights[t] * pixels[t];
    sums >>= kBits;
    sums = sums > 255 ? Pair{} + 255 : sums;
    const auto& all = reinterpret_cast<const Bytes&>(sums);
    // Bytes 0 and 16: the lowest bytes of the first and the last four of eight numbers.
    const Bytes bytes = __builtin_shufflevector(all, all, 0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 20, 24,
                                                28, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16);
    std::memcpy(upper + 3 * x, &bytes, 4);  // the fourth is written anew with the next pixel
    std::memcpy(lower + 3 * x, reinterpret_cast<const std::uint8_t*>(&bytes) + 16, 4);
  }
}

void Resizer::down_columns(const std::uint8_t* rows, std::ptrdiff_t row, const std::int32_t* weights, int taps,
                           std::uint8_t* out, std::ptrdiff_t numbers) {
  constexpr std::ptrdiff_t kBlock = 32;  // sums that stay in registers
  const auto block = [&](std::ptrdiff_t begin, std::ptrdiff_t count) {
    std::array<std::int32_t, kBlock> sums;
    sums.fill(kHalf);
    for (int t = 0; t < taps; ++t)
      for (std::ptrdiff_t x = 0; x < count; ++x)
        sums[static_cast<std::size_t>(x)] += weights[t] * rows[t * row + begin + x];
    for (std::ptrdiff_t x = 0; x < count; ++x) out[begin + x] = to_byte(sums[static_cast<std::size_t>(x)]);
  };
  std::ptrdiff_t begin = 0;
  for (; begin + kBlock <= numbers; begin += kBlock) block(begin, kBlock);
  block(begin, numbers - begin);
}

}  // namespace dat
