#include "data/images/decode.hpp"

#include <algorithm>
#include <mutex>

#include "dat/error.hpp"
#include "data/images/jpeg.hpp"
#include "data/images/png.hpp"

namespace dat {

namespace {

/// Pixels of a window out of all of an image: rgb [window.height][window.width][3].
void cut(const std::uint8_t* image, int width, const ImageWindow& window, std::uint8_t* to) {
  const std::ptrdiff_t row = std::ptrdiff_t{3} * window.width;
  for (int y = 0; y < window.height; ++y)
    std::copy_n(image + std::ptrdiff_t{3} * (std::ptrdiff_t{window.top + y} * width + window.left), row, to + y * row);
}

}  // namespace

ImageShape image_shape(ImageBytes file) {
  if (is_jpeg(file)) return jpeg_shape(file);
  require(is_png(file), ExitCode::data, "is neither JPEG nor PNG");
  return png_shape(file);
}

/// The right to decode an image.
class ImageDecoder::Large {
 public:
  Large(ImageDecoder& decoder, ImageShape shape) : decoder_(decoder) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 24;  // pixels
    static std::mutex one;
    if (area_of(shape) > kLarge) lock_ = std::unique_lock(one);
  }
  ~Large() {
    if (!lock_.owns_lock()) return;
    std::vector<std::uint8_t>().swap(decoder_.pixels_);
    std::vector<std::uint8_t>().swap(decoder_.window_);
  }
  Large(const Large&) = delete;
  Large& operator=(const Large&) = delete;

 private:
  ImageDecoder& decoder_;
  std::unique_lock<std::mutex> lock_;
};

ImageShape ImageDecoder::check(ImageBytes file) {
  const ImageShape shape = image_shape(file);
  const Large large(*this, shape);
  static_cast<void>(whole(file, shape));
  return shape;
}

const std::uint8_t* ImageDecoder::whole(ImageBytes file, ImageShape shape) {
  const ImageWindow all{.height = shape.height, .width = shape.width};
  pixels_.resize(all.rgb_bytes());
  is_jpeg(file) ? decode_jpeg(file, shape, all, pixels_.data()) : decode_png(file, shape, pixels_.data());
  return pixels_.data();
}

void ImageDecoder::see(ImageBytes file, ImageShape shape, const ImageView& view, bool fast, std::uint8_t* rgb) {
  const Large large(*this, shape);
  ImageWindow window = view.window;
  int eighths = 8;
  if (fast && is_jpeg(file)) {
    while (eighths > 1 && window.height * (eighths / 2) / 8 >= view.resized.height &&
           window.width * (eighths / 2) / 8 >= view.resized.width)
      eighths /= 2;
    window = {window.top * eighths / 8, window.left * eighths / 8, window.height * eighths / 8,
              window.width * eighths / 8};
  }
  const ImageShape from{window.height, window.width};
  ImageWindow needed = Resizer::needed(from, view.resized, view.part);
  needed.top += window.top;
  needed.left += window.left;
  const auto decode = [&](std::uint8_t* to) {
    if (is_jpeg(file))
      decode_jpeg(file, shape, needed, to, eighths);
    else
      cut(whole(file, shape), shape.width, needed, to);
  };
  if (from == view.resized) return decode(rgb);
  window_.resize(needed.rgb_bytes());
  decode(window_.data());
  resizer_.resize(window_.data(), from, view.resized, view.part, rgb);
}

}  // namespace dat
