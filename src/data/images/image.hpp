#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

/// A file of an image, as it lies on disk or in an archive.
using ImageBytes = std::span<const std::uint8_t>;

/// The longest side of an image that is taken.
constexpr int kMostPixels = 16384;

}  // namespace dat
