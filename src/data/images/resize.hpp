#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.hpp"

namespace dat {

/// Resizes images as Pillow does with BILINEAR (which torchvision's transforms call antialias): an output pixel is the
/// mean of the input pixels below a triangle that is as wide as two output pixels, or two input pixels where the image
/// grows; rows first, then columns, numbers of 8 bits between. Keeps its memory from one image to the next.
class Resizer {
 public:
  /// Window of the input that the part needs.
  [[nodiscard]] static ImageWindow needed(ImageShape from, ImageShape to, const ImageWindow& part);
  /// Pixels `part` of the image of shape `from` resized to `to`. in: rgb [needed.height][needed.width][3] of
  /// needed(from, to, part); out: rgb [part.height][part.width][3].
  void resize(const std::uint8_t* in, ImageShape from, ImageShape to, const ImageWindow& part, std::uint8_t* out);

 private:
  /// Weights along one axis: for each output pixel the first input pixel and the weights, in units of 2^-22.
  struct Axis {
    int taps = 0;
    std::vector<int> first, count;
    std::vector<std::int32_t> weights;  // [outputs][taps]
    void set(int from, int to, int begin, int outputs);
    [[nodiscard]] const std::int32_t* of(int output) const {
      return weights.data() + static_cast<std::ptrdiff_t>(output) * taps;
    }
  };
  /// The pixels of one column in two rows, each as red, green, blue, nothing.
  using Pair [[gnu::vector_size(32)]] = std::int32_t;

  void pair_up(const std::uint8_t* upper, const std::uint8_t* lower, std::size_t width);
  void along_rows(int outputs, int left, std::uint8_t* upper, std::uint8_t* lower) const;
  static void down_columns(const std::uint8_t* rows, std::ptrdiff_t row, const std::int32_t* weights, int taps,
                           std::uint8_t* out, std::ptrdiff_t numbers);

  Axis rows_, columns_;
  std::vector<Pair> pairs_;            // [input columns]
  std::vector<std::uint8_t> between_;  // rgb [input rows][part.width][3] and a byte
};

}  // namespace dat
