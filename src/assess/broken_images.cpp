#include "assess/broken_images.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ranges>
#include <string>

namespace dat {

namespace {

[[nodiscard]] std::size_t bytes_of_one(const Layout& layout) {
  return sizeof(BrokenImage) + static_cast<std::size_t>(layout.elements()) * sizeof(float);
}

/// Images of each rank that rank 0 takes at a time.
[[nodiscard]] int piece_of(const Layout& layout, int ranks, int most) {
  constexpr std::int64_t kBytes = 1 << 28;  // from all ranks together
  const std::int64_t bytes = static_cast<std::int64_t>(bytes_of_one(layout)) * ranks;
  return static_cast<int>(std::clamp<std::int64_t>(kBytes / bytes, 1, std::max(most, 1)));
}

}  // namespace

std::size_t bytes_handed_over(const Layout& layout, int ranks, int most) {
  return 2 * bytes_of_one(layout) * static_cast<std::size_t>(ranks) *
         static_cast<std::size_t>(piece_of(layout, ranks, most));
}

std::vector<float> image_at(const Layout& layout, const std::vector<float>& pixels, int at) {
  std::vector<float> image;
  for (int y = 0; y < layout.h; ++y)
    for (int x = 0; x < layout.w; ++x)
      for (int c = 0; c < layout.c; ++c) image.push_back(pixels[static_cast<std::size_t>(layout.offset(at, c, y, x))]);
  return image;
}

void hand_over_broken(Communicator& world, const Layout& layout, const std::vector<float>& pixels,
                      const std::vector<BrokenImage>& mine, int most, const BrokenImageSink& take) {
  std::vector<float> image(static_cast<std::size_t>(layout.elements()));
  const std::size_t size = bytes_of_one(layout);
  const int piece = piece_of(layout, world.size(), most);
  for (int first = 0; first < most; first += piece) {
    std::string message;  // number and confidence, and pixels, of each image
    const auto append = [&](const auto& value) { message.append(reinterpret_cast<const char*>(&value), sizeof value); };
    for (const BrokenImage& one : mine | std::views::drop(first) | std::views::take(piece)) {
      append(one);
      for (const float pixel : image_at(layout, pixels, one.at)) append(pixel);
    }
    for (const std::string& text : world.gather(message))
      for (std::size_t at = 0; at < text.size(); at += size) {
        BrokenImage one;
        std::memcpy(&one, text.data() + at, sizeof one);
        std::memcpy(image.data(), text.data() + at + sizeof one, image.size() * sizeof(float));
        take(one.image, image.data(), one.confidence);
      }
  }
}

float confidence_of(std::span<const float> logits) {
  const double largest = double{*std::ranges::max_element(logits)};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return static_cast<float>(1 / sum);
}

}  // namespace dat
