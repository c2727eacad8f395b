#pragma once

#include "data/images/image.hpp"

namespace dat {

[[nodiscard]] bool is_jpeg(ImageBytes file);

/// Shape of a JPEG file. Error(data), without the file's name: it is none, or has a longer side than kMostPixels.
[[nodiscard]] ImageShape jpeg_shape(ImageBytes file);

/// Pixels of a window: rgb [window.height][window.width][3], as Pillow's convert("RGB") has them: of files with four
/// components, which Adobe's programs invert, too. Where eighths < 8, the image is `eighths`/8 of its size, which the
/// transform makes at once; the window, which lies within the image, is then in that image's pixels. A window that is
/// the whole image is read to its end. Error(data), without the file's name: it has another shape than said, is cut
/// off, or its codes are damaged.
void decode_jpeg(ImageBytes file, ImageShape shape, const ImageWindow& window, std::uint8_t* rgb, int eighths = 8);

}  // namespace dat
