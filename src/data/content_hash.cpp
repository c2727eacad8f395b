#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/tick.hpp"

namespace dat {

std::string content_hash(const Dataset& images) {
  constexpr std::int64_t kMostImages = 65536, kMostBytes = kMostImages * 4096, kBlock = 1 << 14;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t bytes) { XXH3_128bits_update(state.get(), data, bytes); };
  const DatasetInfo& info = images.info();
  const std::int64_t size = images.size(), numbers[] = {size, info.channels, info.classes};
  add(numbers, sizeof numbers);
  for (const std::string& name : info.class_names) add(name.c_str(), name.size() + 1);
  for_labels(images, [&](std::span<const std::int16_t> labels) { add(labels.data(), labels.size_bytes()); });
  const auto add_image = [&](std::int64_t i, std::uint64_t hash) {
    const ImageShape shape = images.shape(i);
    const std::uint64_t of_image[] = {static_cast<std::uint64_t>(shape.height), static_cast<std::uint64_t>(shape.width),
                                      hash};
    add(of_image, sizeof of_image);
  };
  std::vector<bool> others(static_cast<std::size_t>(size));  // the images without a stored hash
  std::int64_t count = 0, bytes = 0;
  std::vector<std::uint64_t> hashes;
  for (std::int64_t first = 0; first < size;) {
    tick();
    hashes.resize(static_cast<std::size_t>(std::min(kBlock, size - first)));
    const std::int64_t stored = images.stored_hashes(first, hashes);
    for (std::int64_t k = 0; k < stored; ++k) add_image(first + k, hashes[static_cast<std::size_t>(k)]);
    first += stored;
    if (stored > 0) continue;
    others[static_cast<std::size_t>(first)] = true;
    const ImageShape shape = images.shape(first++);
    ++count;
    bytes += std::int64_t{shape.height} * shape.width * info.channels;
  }
  std::int64_t number = 0, stride = 1;
  while (count > stride * kMostImages || bytes > stride * kMostBytes) ++stride;
  for (std::int64_t i = 0; i < size; ++i) {
    if (!others[static_cast<std::size_t>(i)] || number++ % stride != 0) continue;
    tick();
    add_image(i, images.hash(i));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace dat
