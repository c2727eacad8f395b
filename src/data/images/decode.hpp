#pragma once

#include <vector>

#include "data/images/image.hpp"
#include "data/images/resize.hpp"
#include "data/images/view.hpp"

namespace dat {

/// Shape of a JPEG or PNG file, whatever it is called. Error(data), without the file's name: it is neither, or damaged.
[[nodiscard]] ImageShape image_shape(ImageBytes file);

/// Decodes images one after the other, and keeps its memory from one to the next. Large images take up to a gigabyte
/// and a half: the process decodes one of them at a time, and keeps nothing.
class ImageDecoder {
 public:
  /// Decodes all pixels, and returns the shape. Error(data): the file is damaged, or too large.
  ImageShape check(ImageBytes file);
  /// Decodes the view of a file: rgb [size][size][3]. Only the window of a JPEG is decoded. fast: it is made smaller by
  /// the transform as far as it stays as large as what it is resized to; other numbers, in a fraction of the time.
  /// Error(data): the file is damaged, or has another shape than the view was made for.
  void see(ImageBytes file, ImageShape shape, const ImageView& view, bool fast, std::uint8_t* rgb);

 private:
  class Large;
  [[nodiscard]] const std::uint8_t* whole(ImageBytes file, ImageShape shape);

  Resizer resizer_;
  std::vector<std::uint8_t> pixels_, window_;
};

}  // namespace dat
