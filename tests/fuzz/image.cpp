#include <vector>

#include "data/images/decode.hpp"
#include "data/images/view.hpp"
#include "fuzz/targets.hpp"

void dat::fuzz::image(Bytes bytes) {
  answered([&] {
    constexpr int kSize = 5;
    constexpr std::int64_t kMost = 1 << 20;  // larger ones take long, not more
    const ImageShape shape = image_shape(bytes);
    if (area_of(shape) > kMost) return;
    ImageDecoder decoder;
    std::vector<std::uint8_t> pixels(3 * kSize * kSize);
    for (const bool fast : {false, true})
      answered([&] { decoder.see(bytes, shape, random_view(shape, kSize, 1, 0, 1), fast, pixels.data()); });
    static_cast<void>(decoder.check(bytes));
  });
}
