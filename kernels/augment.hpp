#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// uint8 [.., h, w, c] -> float in [0, 1] in the image layout: cut, mirror, divide by 255. Image n is number places[n]
/// of `pixels`, or number n where places is null. Runs over n*h*w.
struct Augment {
  const std::uint8_t* pixels;
  const std::int64_t* places;  // [n]
  const Crop* crops;           // [n]
  float* x;
  Layout layout;
  DAT_HD void operator()(std::int64_t i) const {
    const int h = layout.h, w = layout.w;
    const std::int64_t n = i / (h * w);
    const int y = static_cast<int>(i / w % h), column = static_cast<int>(i % w);
    const Crop crop = crops[n];
    const int from_y = y + crop.top, from_x = (crop.flip != 0 ? w - 1 - column : column) + crop.left;
    const bool inside = from_y >= 0 && from_y < h && from_x >= 0 && from_x < w;
    const std::int64_t place = places != nullptr ? places[n] : n;
    const std::uint8_t* from = pixels + ((place * h + from_y) * w + from_x) * layout.c;
    for (int c = 0; c < layout.c; ++c)
      x[layout.offset(n, c, y, column)] = inside ? static_cast<float>(from[c]) / 255.0F : 0.0F;
  }
};

}  // namespace dat::kernels
