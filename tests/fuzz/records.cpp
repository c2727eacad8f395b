#include <algorithm>

#include "data/convert/forms.hpp"
#include "fuzz/targets.hpp"

void dat::fuzz::records(Bytes bytes) {
  if (bytes.size() < 2) return;
  const int size = 1 + bytes[0] % 64, label_bytes = 1 + bytes[1] % 16;
  std::int64_t images = 0;
  answered([&] {
    read_records(memory(bytes.subspan(2)), size, label_bytes, 10, [&](const auto& pixels, const auto& labels) {
      images += std::ssize(labels);
      require(std::ssize(pixels) == std::ssize(labels) * 3 * size * size &&
                  std::all_of(labels.begin(), labels.end(), [](std::uint8_t label) { return label < 10; }),
              ExitCode::integrity, "no images");
    });
  });
}
