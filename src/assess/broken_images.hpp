#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// Takes an image that an attack has broken. pixels: [size][size][channels]; confidence: the probability that the
/// network gives to the class which it takes the image for.
using BrokenImageSink = std::function<void(std::int64_t image, const float* pixels, float confidence)>;

/// A broken image of this rank.
struct BrokenImage {
  std::int64_t image = 0;  ///< number in the set
  int at = 0;              ///< place among the pixels
  float confidence = 0;
};

/// An image [size][size][channels] of those in `layout`, one after the other; at: its place among them.
[[nodiscard]] std::vector<float> image_at(const Layout& layout, const std::vector<float>& pixels, int at = 0);

/// Gives the broken images of all ranks to `take` on rank 0, some at a time. **Collective.**
///
/// @param pixels  Images in `layout`, one after the other.
/// @param most    Largest number of broken images that any rank can have, the same on all ranks.
void hand_over_broken(Communicator& world, const Layout& layout, const std::vector<float>& pixels,
                      const std::vector<BrokenImage>& mine, int most, const BrokenImageSink& take);

/// Most bytes that rank 0 holds at a time of what hand_over_broken gives it: as it comes, and apart by rank.
[[nodiscard]] std::size_t bytes_handed_over(const Layout& layout, int ranks, int most);

/// Probability of the class with the largest logit; NaN where the logits are not finite.
[[nodiscard]] float confidence_of(std::span<const float> logits);

}  // namespace dat
