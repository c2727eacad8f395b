#pragma once

#include <cstdint>
#include <span>

#include "dat/image.hpp"

namespace dat {

/// A file of an image, as it lies on disk or in an archive.
using ImageBytes = std::span<const std::uint8_t>;

/// The most pixels of an image that is taken: 400 MB decoded.
constexpr std::int64_t kMostArea = std::int64_t{1} << 27;
[[nodiscard]] constexpr std::int64_t area_of(ImageShape shape) { return std::int64_t{shape.height} * shape.width; }

}  // namespace dat
