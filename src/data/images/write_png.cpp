#include "data/images/write_png.hpp"

#include <png.h>

#include <cerrno>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

void write_png(const std::string& path, ImageShape shape, const std::vector<std::uint8_t>& rgb) {
  write_atomically(path, [&](const std::string& temporary) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.height = static_cast<png_uint_32>(shape.height);
    image.width = static_cast<png_uint_32>(shape.width);
    image.format = PNG_FORMAT_RGB;
    errno = 0;
    const bool done = png_image_write_to_file(&image, temporary.c_str(), 0, rgb.data(), 0, nullptr) != 0;
    require(done, ExitCode::io, path, ": cannot be written: ", errno != 0 ? system_reason(errno) : image.message);
  });
}

}  // namespace dat
