#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// Images in strips: runs of at most kStrip elements of one image. Numbers that are one per image are read once per
/// strip, and sums and maxima of an image have one fixed order: within a strip, then over the image's strips.
struct Strips {
  static constexpr std::int64_t kStrip = 64;
  struct Strip {
    std::int64_t image, begin, end;  // elements counted over the whole batch
  };
  std::int64_t elements;  // elements of one image

  [[nodiscard]] DAT_HD std::int64_t per_image() const { return (elements + kStrip - 1) / kStrip; }
  [[nodiscard]] DAT_HD Strip at(std::int64_t i) const {
    const std::int64_t image = i / per_image(), first = (i - image * per_image()) * kStrip;
    return {image, image * elements + first, image * elements + smaller(first + kStrip, elements)};
  }
};

/// Result of an attack: x_adv = `found` where `take` says so, else the clean image; eta = x_adv - x. take null:
/// everywhere. Runs over the strips.
template <class T>
struct TakeResult {
  Strips strips;
  const std::int32_t* take;  // [n]
  const T *x, *found;
  T *x_adv, *eta;
  DAT_HD void operator()(std::int64_t i) const {
    const Strips::Strip strip = strips.at(i);
    const T* from = take == nullptr || take[strip.image] != 0 ? found : x;
    for (std::int64_t e = strip.begin; e < strip.end; ++e) {
      x_adv[e] = from[e];
      eta[e] = from[e] - x[e];
    }
  }
};

}  // namespace dat::kernels
