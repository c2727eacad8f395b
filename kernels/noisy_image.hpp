#pragma once

#include <cstdint>

#include "dat/random.hpp"
#include "perturb.hpp"

namespace dat::kernels {

/// Samples of one image with noise, number first_sample and the following ones. A sample's noise depends on seed,
/// purpose, image and the sample's number alone; it is drawn in groups of four pixels, as RandomStart's.
struct NoisySamples {
  const float* image;  ///< image in [0, 1], in `layout`
  float* x;            ///< [n] images
  Layout layout;
  std::uint64_t seed;
  Purpose purpose;
  std::uint64_t id;  ///< number of the image
  std::uint32_t first_sample;

  [[nodiscard]] DAT_HD std::uint32_t number_of(std::int64_t n) const {
    return first_sample + static_cast<std::uint32_t>(n);
  }
  /// Four random words of group k of sample n. `more`: the next 32 bits of each of them.
  [[nodiscard]] DAT_HD Philox4 words(std::int64_t n, std::int64_t k, bool more) const {
    return random_words(seed, purpose, number_of(n), id, static_cast<std::uint32_t>(k) | (more ? 0x80000000U : 0U));
  }
};

/// x = image + N(0, sigma^2), not clamped. Runs over n * rows(): kRow groups at a time.
struct NormalNoise {
  NoisySamples samples;
  float sigma;
  [[nodiscard]] DAT_HD std::int64_t rows() const { return (samples.layout.fours() + kRow - 1) / kRow; }
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t n = i / rows(), group = i % rows() * kRow;
    const NormalRow row = normal_row(random_word_row(samples.seed, samples.purpose, samples.number_of(n), samples.id,
                                                     static_cast<std::uint32_t>(group)));
    std::int64_t at = 4 * group;
    for (const float z : row.z) {
      if (at >= samples.layout.elements()) return;
      samples.x[samples.layout.offset_chw(n, at)] = samples.image[samples.layout.offset_chw(0, at)] + sigma * z;
      ++at;
    }
  }
};

/// Noisy image on the grid of pixels, i/255: the image, whose pixels are on it, and noise from a table (GridNoise), of
/// which only integers decide. Runs over n * layout.fours(). The sum is cut at low/255 and high/255.
struct TableNoise {
  NoisySamples samples;
  const std::uint64_t* entries;  ///< [2 half], the last one 2^64 - 1
  const std::int32_t* guide;     ///< [1024]
  int half;
  std::int32_t low, high;
  std::uint8_t* unknown;  ///< [n][groups of 4 pixels]: 1 where a draw of the group equals an entry, so that its noise
                          ///< is not known

  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t fours = samples.layout.fours(), n = i / fours, k = i % fours;
    const Philox4 words = samples.words(n, k, false);
    bool not_known = false;
    for (int j = 0; j < samples.layout.in_four(k); ++j) {
      const std::int32_t pixel =
          static_cast<std::int32_t>(samples.image[samples.layout.offset_chw(0, 4 * k + j)] * 255.0F + 0.5F);
      const std::int32_t sum = pixel + noise(words.v[j], n, k, j, not_known);
      samples.x[samples.layout.offset_chw(n, 4 * k + j)] = static_cast<float>(clamp(sum, low, high)) / 255.0F;
    }
    unknown[i] = not_known ? 1 : 0;
  }

  /// The noise in units of 1/255, of which `word` is the upper half of the 64 bits.
  [[nodiscard]] DAT_HD std::int32_t noise(std::uint32_t word, std::int64_t n, std::int64_t k, int j,
                                          bool& not_known) const {
    constexpr int kGuided = 22;  // bits by which the guide does not go
    std::int32_t below = guide[word >> kGuided];
    const auto upper = [&] { return static_cast<std::uint32_t>(entries[below] >> 32); };
    const auto draw = [&] { return std::uint64_t{word} << 32 | samples.words(n, k, true).v[j]; };
    while (upper() < word) ++below;
    while (upper() == word && entries[below] < draw()) ++below;  // the lower half decides
    not_known = not_known || (upper() == word && entries[below] == draw());
    return below - half;
  }
};

}  // namespace dat::kernels
