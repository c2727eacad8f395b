#pragma once

#include <cstddef>

namespace dat {

/// Height and width of an image, in pixels.
struct ImageShape {
  int height = 0, width = 0;
  bool operator==(const ImageShape&) const = default;
};

/// A part of an image, in its pixels.
struct ImageWindow {
  int top = 0, left = 0, height = 0, width = 0;
  bool operator==(const ImageWindow&) const = default;
  [[nodiscard]] std::size_t rgb_bytes() const {
    return std::size_t{3} * static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  }
};

/// Description of how an image becomes the square that a network sees: a window of it is resized, and a part of that is
/// taken.
struct ImageView {
  ImageWindow window;  ///< window of the image
  ImageShape resized;  ///< size to which the window is resized
  ImageWindow part;    ///< part of the resized window that is kept: size x size
  bool operator==(const ImageView&) const = default;
};

/// The longest side of an image that is taken.
constexpr int kMostPixels = 16384;

}  // namespace dat
