#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/image.hpp"

namespace dat {

/// The PNG file of pixels rgb [height][width][3]. Error(io): libpng fails.
[[nodiscard]] std::string png_of(ImageShape shape, const std::vector<std::uint8_t>& rgb);
/// Writes pixels rgb [height][width][3] as a PNG file, as write_atomically() does. Error(io).
void write_png(const std::string& path, ImageShape shape, const std::vector<std::uint8_t>& rgb);

}  // namespace dat
