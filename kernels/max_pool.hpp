#pragma once

#include <cstdint>

#include "launch.hpp"
#include "pointwise.hpp"

namespace dat::kernels {

/// A max pool over windows of kernel x kernel pixels, `stride` apart, of which the first begin `pad` pixels above and
/// left of x. Every window has a pixel of x.
struct MaxPool {
  Layout x, y;  ///< layouts of one sample, with a multiple of 16 channels
  int kernel, stride, pad;
};

/// Channels of one pixel that lie side by side in all layouts, or those of a piece of N elements, if these are fewer.
template <int N>
constexpr int kSide = N < 8 ? N : 8;

/// Place of element `first`, counted over all samples of a layout.
struct PixelPlace {
  std::int64_t plane;  ///< counts the pairs of sample and block of channels
  int y, x, lane;      ///< lane: the channel within the block
};
[[nodiscard]] DAT_HD inline PixelPlace pixel_place(const Layout& layout, std::int64_t first) {
  const std::int64_t row = first / layout.block;
  // In 32 bits: 64-bit divisions would take longer than the rest.
  const auto pixels = static_cast<std::uint32_t>(layout.h * layout.w), width = static_cast<std::uint32_t>(layout.w);
  const std::uint32_t plane = static_cast<std::uint32_t>(row) / pixels,
                      pixel = static_cast<std::uint32_t>(row) - plane * pixels, line = pixel / width;
  return {plane, static_cast<int>(line), static_cast<int>(pixel - line * width),
          static_cast<int>(first - row * layout.block)};
}
[[nodiscard]] DAT_HD inline std::int64_t element_at(const Layout& layout, const PixelPlace& of, int y, int x) {
  return ((of.plane * layout.h + y) * layout.w + x) * layout.block + of.lane;
}

/// y = the largest value of each window; place = where it is in the window, row by row. The first of equal values wins;
/// NaN wins over all, the last one (PyTorch's max_pool2d).
template <class T>
struct MaxPoolForward {
  using Element = T;
  const T* x;
  T* y;
  std::uint8_t* place;
  MaxPool of;
  std::int64_t n;  ///< elements of y
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    constexpr int kCount = kSide<N>;
    DAT_UNROLL
    for (int part = 0; part < N / kCount; ++part) {
      const std::int64_t first = k * N + part * kCount;
      const PixelPlace to = pixel_place(of.y, first);
      const int top = to.y * of.stride - of.pad, left = to.x * of.stride - of.pad;
      const int begin_y = larger(-top, 0), end_y = smaller(of.x.h - top, of.kernel);
      const int begin_x = larger(-left, 0), end_x = smaller(of.x.w - left, of.kernel);
      Piece<kCount> best = Piece<kCount>::load(x + element_at(of.x, to, top + begin_y, left + begin_x), kCount);
      int at[kCount];
      DAT_SIMD
      for (int j = 0; j < kCount; ++j) at[j] = begin_y * of.kernel + begin_x;
      for (int ky = begin_y; ky < end_y; ++ky)
        for (int kx = begin_x; kx < end_x; ++kx) {
          const auto value = Piece<kCount>::load(x + element_at(of.x, to, top + ky, left + kx), kCount);
          const int here = ky * of.kernel + kx;
          DAT_SIMD
          for (int j = 0; j < kCount; ++j) {
            const bool wins = value.v[j] > best.v[j] || value.v[j] != value.v[j];
            best.v[j] = wins ? value.v[j] : best.v[j];
            at[j] = wins ? here : at[j];
          }
        }
      best.store(y + first, kCount);
      DAT_UNROLL
      for (int j = 0; j < kCount; ++j) place[first + j] = static_cast<std::uint8_t>(at[j]);
    }
  }
};

/// dx = the sum of what the windows give whose largest value it is, row by row of the windows.
template <class T>
struct MaxPoolBackward {
  using Element = T;
  const T* dy;
  const std::uint8_t* place;  ///< output of MaxPoolForward
  T* dx;
  MaxPool of;
  std::int64_t n;  ///< elements of dx
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    constexpr int kCount = kSide<N>;
    DAT_UNROLL
    for (int part = 0; part < N / kCount; ++part) {
      const std::int64_t first = k * N + part * kCount;
      const PixelPlace to = pixel_place(of.x, first);
      const int y = to.y + of.pad, x = to.x + of.pad;  // from the corner of the first window on
      const auto first_window = [&](int at) { return larger((at - of.kernel + of.stride) / of.stride, 0); };
      const auto last_window = [&](int at, int windows) { return smaller(at / of.stride, windows - 1); };
      const int begin_y = first_window(y), last_y = last_window(y, of.y.h);
      const int begin_x = first_window(x), last_x = last_window(x, of.y.w);
      Piece<kCount> sum{};
      for (int row = begin_y; row <= last_y; ++row)
        for (int column = begin_x; column <= last_x; ++column) {
          const std::int64_t from = element_at(of.y, to, row, column);
          const int here = (y - row * of.stride) * of.kernel + x - column * of.stride;
          const auto part_of_it = Piece<kCount>::load(dy + from, kCount);
          DAT_SIMD
          for (int j = 0; j < kCount; ++j) sum.v[j] += place[from + j] == here ? part_of_it.v[j] : 0.0F;
        }
      sum.store(dx + first, kCount);
    }
  }
};

}  // namespace dat::kernels
