#include <png.h>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/images/png.hpp"

namespace dat {

std::string png_of(ImageShape shape, const std::vector<std::uint8_t>& rgb) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(shape.height);
  image.width = static_cast<png_uint_32>(shape.width);
  image.format = PNG_FORMAT_RGB;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t bytes = file.size();
  const bool done = png_image_write_to_memory(&image, file.data(), &bytes, {}, rgb.data(), {}, nullptr) != 0;
  require(done, ExitCode::io, "an image cannot be written as PNG: ", image.message);
  file.resize(bytes);
  return file;
}

void write_png(const std::string& path, ImageShape shape, const std::vector<std::uint8_t>& rgb) {
  write_text_atomically(path, png_of(shape, rgb));
}

}  // namespace dat
