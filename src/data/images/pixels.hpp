#pragma once

#include <cstdint>

#include "dat/image.hpp"

namespace dat {

/// A view of an image in memory, pixels [height][width][channels] of 1 to 4 channels, each of which is resized as
/// Resizer does: to [view.part.height][view.part.width][channels].
void see_pixels(const std::uint8_t* image, ImageShape shape, int channels, const ImageView& view, std::uint8_t* to);

}  // namespace dat
