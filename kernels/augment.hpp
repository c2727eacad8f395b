#pragma once

#include <cstdint>

#include "perturb.hpp"

namespace dat::kernels {

/// Pixel number i (over n*h*w) of augmented images, which lie in `layout`, and the pixel of the original that was put
/// there. Originals have `size` x `size` pixels, augmented images may have fewer.
struct AugmentedPixel {
  std::int64_t n;
  int y, x, from_y, from_x, size;
  bool inside;  ///< the original has such a pixel; else it is padding
  DAT_HD AugmentedPixel(std::int64_t i, const Layout& layout, int of, const Crop* crops) : size(of) {
    const int h = layout.h, w = layout.w;
    n = i / (h * w);
    y = static_cast<int>(i / w % h);
    x = static_cast<int>(i % w);
    const Crop crop = crops[n];
    from_y = y + crop.top;
    from_x = (crop.flip != 0 ? w - 1 - x : x) + crop.left;
    inside = from_y >= 0 && from_y < size && from_x >= 0 && from_x < size;
  }
  /// Index of its first channel in [.., size, size, channels], for the original with number `place` there.
  [[nodiscard]] DAT_HD std::int64_t from(std::int64_t place, int channels) const {
    return ((place * size + from_y) * size + from_x) * channels;
  }
};

/// uint8 [.., size, size, c] -> float in [0, 1] in the layout of the cuts: cut, mirror, divide by 255. Image n is
/// number places[n] of `pixels`, or number n where places is null. Runs over n*h*w of the layout.
struct Augment {
  const std::uint8_t* pixels;
  const std::int64_t* places;  // [n]
  const Crop* crops;           // [n]
  float* x;
  Layout layout;
  int size;
  DAT_HD void operator()(std::int64_t i) const {
    const AugmentedPixel p(i, layout, size, crops);
    const std::uint8_t* from = pixels + p.from(places != nullptr ? places[p.n] : p.n, layout.c);
    for (int c = 0; c < layout.c; ++c)
      x[layout.offset(p.n, c, p.y, p.x)] = p.inside ? static_cast<float>(from[c]) / 255.0F : 0.0F;
  }
};

/// A number of [-eps, eps] in a byte: 128 + 127 eta/eps, rounded; 0: none, or NaN. Wrong by at most eps/254;
/// exact at 0 and eps.
[[nodiscard]] DAT_HD inline std::uint8_t to_byte(float eta, float eps) {
  return static_cast<std::uint8_t>(larger(clamp(eta / eps * 127.0F, -127.0F, 127.0F) + 128.5F, 0.0F));
}
[[nodiscard]] DAT_HD inline float from_byte(std::uint8_t byte, float eps) {
  return static_cast<float>(byte - 128) / 127.0F * eps;
}

/// Perturbations of originals, [.., size, size, c] in bytes, to the augmented images: eta = what is kept, within the
/// box 0 <= x + eta <= 1. eta stays as it is in the padding, and where none is kept. Image n is number places[n] of
/// `kept`. Runs over n*h*w.
struct Recall {
  const std::uint8_t* kept;
  const std::int64_t* places;  // [n]
  const Crop* crops;           // [n]
  const float* x;
  float* eta;
  Layout layout;
  int size;
  float eps;
  DAT_HD void operator()(std::int64_t i) const {
    const AugmentedPixel p(i, layout, size, crops);
    if (!p.inside) return;
    const std::uint8_t* from = kept + p.from(places[p.n], layout.c);
    for (int c = 0; c < layout.c; ++c) {
      const std::int64_t at = layout.offset(p.n, c, p.y, p.x);
      if (from[c] != 0) eta[at] = clamp(from_byte(from[c], eps), -x[at], 1.0F - x[at]);
    }
  }
};

/// Inverse of the cut: keeps x_adv - x of the pixels that the original has; what was cut off stays as it was. ("Inverse
/// data augmentation": Zheng et al., CVPR 2020.) Runs over n*h*w.
struct Remember {
  std::uint8_t* kept;
  const std::int64_t* places;  // [n]
  const Crop* crops;           // [n]
  const float *x, *x_adv;
  Layout layout;
  int size;
  float eps;
  DAT_HD void operator()(std::int64_t i) const {
    const AugmentedPixel p(i, layout, size, crops);
    if (!p.inside) return;
    std::uint8_t* to = kept + p.from(places[p.n], layout.c);
    for (int c = 0; c < layout.c; ++c) {
      const std::int64_t at = layout.offset(p.n, c, p.y, p.x);
      to[c] = to_byte(x_adv[at] - x[at], eps);
    }
  }
};

}  // namespace dat::kernels
