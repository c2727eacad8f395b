#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/tick.hpp"

namespace dat {

std::string content_hash(const Dataset& images) {
  constexpr std::int64_t kMostImages = 65536, kMostBytes = kMostImages * 4096;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t bytes) { XXH3_128bits_update(state.get(), data, bytes); };
  const DatasetInfo& info = images.info();
  const std::int64_t size = images.size(), shape[] = {size, info.size, info.channels, info.classes};
  add(shape, sizeof shape);
  for (const std::string& name : info.class_names) add(name.c_str(), name.size() + 1);
  for (std::int64_t i = 0; i < size; ++i) {
    const int label = images.label(i);
    const auto known = static_cast<std::uint8_t>(label);
    label >= 0 ? add(&known, sizeof known) : add(&label, sizeof label);
  }
  std::vector<std::uint8_t> pixels(info.image_bytes());
  const std::int64_t most = std::clamp<std::int64_t>(kMostBytes / std::ssize(pixels), 1, kMostImages);
  const std::int64_t stride = (size + most - 1) / most;
  for (std::int64_t i = 0; i < size; i += stride) {
    tick();
    images.read(i, pixels.data());
    add(pixels.data(), pixels.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace dat
