#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <span>

#include "dat/dataset.hpp"
#include "dat/tick.hpp"

namespace dat {

std::string content_hash(const Dataset& images) {
  constexpr std::int64_t kMostImages = 65536, kMostBytes = kMostImages * 4096;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t bytes) { XXH3_128bits_update(state.get(), data, bytes); };
  const DatasetInfo& info = images.info();
  const std::int64_t size = images.size(), numbers[] = {size, info.channels, info.classes};
  add(numbers, sizeof numbers);
  for (const std::string& name : info.class_names) add(name.c_str(), name.size() + 1);
  for_labels(images, [&](std::span<const std::int16_t> labels) { add(labels.data(), labels.size_bytes()); });
  std::int64_t most = kMostImages;
  if (!info.decoded && size > 0) {
    const ImageShape first = images.shape(0);
    most = std::clamp<std::int64_t>(kMostBytes / (std::int64_t{first.height} * first.width * info.channels), 1, most);
  }
  const std::int64_t stride = (size + most - 1) / most;
  for (std::int64_t i = 0; i < size; i += stride) {
    tick();
    const ImageShape shape = images.shape(i);
    const std::uint64_t of_image[] = {static_cast<std::uint64_t>(shape.height), static_cast<std::uint64_t>(shape.width),
                                      images.hash(i)};
    add(of_image, sizeof of_image);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace dat
