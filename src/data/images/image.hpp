#pragma once

#include <cstdint>
#include <span>

#include "dat/image.hpp"

namespace dat {

/// A file of an image, as it lies on disk or in an archive.
using ImageBytes = std::span<const std::uint8_t>;

}  // namespace dat
