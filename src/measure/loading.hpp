#pragma once

#include "dat/dataset.hpp"
#include "dat/loader.hpp"

namespace dat {

/// Rate at which images were read or processed.
struct ReadingRate {
  double images = 0;  ///< a second; 0: not measured
  double bytes = 0;   ///< bytes of pixels a second
};

/// Whole images of a set as they are stored: JPEG and PNG decoded and nothing else, each thread with its own images.
[[nodiscard]] ReadingRate decoding_rate(const Dataset& images, int threads, double seconds);
/// Batches as a training gets them, by one rank. At least two batches beside the first ones, which do not count.
[[nodiscard]] ReadingRate loading_rate(const Dataset& images, const LoaderOptions& options, double seconds);

}  // namespace dat
