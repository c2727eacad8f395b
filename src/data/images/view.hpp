#pragma once

#include <cstdint>

#include "dat/image.hpp"

namespace dat {

/// View of evaluations, and of trainings that cut no windows: the shorter side becomes size * 256/224, the centre is
/// taken, as torchvision's Resize and CenterCrop do. An image of size x size is taken as it is.
[[nodiscard]] ImageView centre_view(ImageShape image, int size);

/// torchvision's RandomResizedCrop: a window of .08 to 1 of the image's area whose ratio of width to height is between
/// 3/4 and 4/3, in logarithms alike likely, at a place that is drawn; where ten do not fit, the centre as far as the
/// ratio allows. Drawn by the seed, the epoch and the sample: any rank finds the same one.
[[nodiscard]] ImageView random_view(ImageShape image, int size, std::uint64_t seed, std::uint32_t epoch,
                                    std::int64_t sample);

}  // namespace dat
