#include "data/images/view.hpp"

#include <algorithm>
#include <cmath>

#include "dat/random.hpp"

namespace dat {

namespace {

/// Halves go to the even number, as in Python.
[[nodiscard]] int rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

[[nodiscard]] ImageView of_window(const ImageWindow& window, int size) {
  return {.window = window, .resized = {size, size}, .part = {.height = size, .width = size}};
}

}  // namespace

ImageView centre_view(ImageShape image, int size) {
  const ImageWindow all{0, 0, image.height, image.width};
  if (image == ImageShape{size, size}) return of_window(all, size);
  const std::int64_t shorter = std::int64_t{size} * 256 / 224, least = std::min(image.height, image.width);
  const auto side = [&](int old) { return static_cast<int>(std::max<std::int64_t>(shorter * old / least, size)); };
  const ImageShape resized{side(image.height), side(image.width)};
  const auto begin = [&](int length) { return rounded((length - size) / 2.0); };
  return {.window = all, .resized = resized, .part = {begin(resized.height), begin(resized.width), size, size}};
}

ImageView random_view(ImageShape image, int size, std::uint64_t seed, std::uint32_t epoch, std::int64_t sample) {
  constexpr double kLeastArea = 0.08, kRatio = 4.0 / 3.0;
  constexpr std::uint32_t kTries = 10;
  const double area = static_cast<double>(image.height) * image.width;
  for (std::uint32_t k = 1; k <= kTries; ++k) {  // number 0 draws whether it is mirrored
    const Philox4 words = random_words(seed, Purpose::augmentation, epoch, static_cast<std::uint64_t>(sample), k);
    const auto uniform = [&](int word) { return static_cast<double>(words.v[word]) * 0x1p-32; };
    const double target = area * (kLeastArea + (1 - kLeastArea) * uniform(0));
    const double ratio = std::exp(std::log(kRatio) * (2 * uniform(1) - 1));
    const int width = rounded(std::sqrt(target * ratio)), height = rounded(std::sqrt(target / ratio));
    if (width < 1 || width > image.width || height < 1 || height > image.height) continue;
    const auto place = [&](int word, int free) {  // 0 ... free
      return static_cast<int>(std::uint64_t{words.v[word]} * static_cast<std::uint64_t>(free + 1) >> 32U);
    };
    return of_window({place(2, image.height - height), place(3, image.width - width), height, width}, size);
  }
  const int width = std::min(image.width, rounded(image.height * kRatio)),
            height = std::min(image.height, rounded(image.width * kRatio));
  return of_window({(image.height - height) / 2, (image.width - width) / 2, height, width}, size);
}

}  // namespace dat
