#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/image.hpp"

namespace dat {

[[nodiscard]] bool is_png(ImageBytes file);

/// Shape of a PNG file. Error(data), without the file's name: it is none, or has a longer side than kMostPixels.
[[nodiscard]] ImageShape png_shape(ImageBytes file);

/// All pixels: rgb [height][width][3]. Palettes and grey become colours, 16 bits the upper 8, transparency is left out.
/// Error(data), without the file's name: it has another shape than said, is cut off or damaged.
void decode_png(ImageBytes file, ImageShape shape, std::uint8_t* rgb);

/// The PNG file of pixels rgb [height][width][3]. Error(io): libpng fails.
[[nodiscard]] std::string png_of(ImageShape shape, const std::vector<std::uint8_t>& rgb);
/// Writes pixels rgb [height][width][3] as a PNG file, as write_atomically() does. Error(io).
void write_png(const std::string& path, ImageShape shape, const std::vector<std::uint8_t>& rgb);

}  // namespace dat
