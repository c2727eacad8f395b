#pragma once

#include "data/images/image.hpp"

namespace dat {

[[nodiscard]] bool is_png(ImageBytes file);

/// Shape of a PNG file. Error(data), without the file's name: it is none, or has a longer side than kMostPixels.
[[nodiscard]] ImageShape png_shape(ImageBytes file);

/// All pixels: rgb [height][width][3]. Palettes and grey become colours, 16 bits the upper 8, transparency is left out.
/// Error(data), without the file's name: it is cut off or damaged.
void decode_png(ImageBytes file, std::uint8_t* rgb);

}  // namespace dat
