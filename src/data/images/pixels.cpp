#include "data/images/pixels.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "data/images/resize.hpp"

namespace dat {

void see_pixels(const std::uint8_t* image, ImageShape shape, int channels, const ImageView& view, std::uint8_t* to) {
  constexpr int kColours = 3;  // colours that are resized at once
  thread_local Resizer resizer;
  thread_local std::vector<std::uint8_t> in, out;
  const ImageShape from{view.window.height, view.window.width};
  const ImageWindow needed = Resizer::needed(from, view.resized, view.part);
  const int top = view.window.top + needed.top, left = view.window.left + needed.left;
  const auto area = static_cast<std::size_t>(view.part.height) * static_cast<std::size_t>(view.part.width);
  in.resize(needed.rgb_bytes());
  out.resize(kColours * area);
  for (int first = 0; first < channels; first += kColours) {
    const int count = std::min(kColours, channels - first);
    std::uint8_t* next = in.data();
    for (int y = 0; y < needed.height; ++y)
      for (int x = 0; x < needed.width; ++x, next += kColours) {
        const std::ptrdiff_t pixel = std::ptrdiff_t{top + y} * shape.width + left + x;
        std::copy_n(image + pixel * channels + first, count, next);
      }
    resizer.resize(in.data(), from, view.resized, view.part, out.data());
    for (std::size_t k = 0; k < area; ++k)
      std::copy_n(out.data() + kColours * k, count, to + k * static_cast<std::size_t>(channels) + first);
  }
}

}  // namespace dat
