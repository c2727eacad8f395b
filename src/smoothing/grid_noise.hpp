#pragma once

#include <cstdint>
#include <vector>

namespace dat {

/// The normal distribution on the grid of pixels, i/255, as integers, for noise whose probabilities are exact.
///
/// A draw is a real number u, uniform in [0, 1), of which 64 bits are known: U = floor(2^64 u). Its noise is
/// Z = sigma Phi^-1(u), rounded to the grid: (j - half)/255, where j is the number of entries Phi((m - half + 1/2) /
/// (255 sigma)), m = 0, 1, ..., that are below u. An entry here is floor(2^64 Phi), so that U decides unless it equals
/// an entry. Voracek and Hein, "Sound Randomized Smoothing in Floating-Point Arithmetics", ICLR 2023: what is smoothed
/// with exact normal noise is x -> f(round(x)), so the certificate holds for every real image near an image on the
/// grid.
struct GridNoise {
  int half = 0;                        ///< the noise is from -half/255 to half/255
  std::vector<std::uint64_t> entries;  ///< [2 half], increasing; the first is 0, the last 2^64 - 1
  std::vector<std::int32_t> guide;     ///< [1024]: how many entries have upper words below 2^22 times the place
  std::int32_t low = 0, high = 0;      ///< sums of pixel and noise are cut there, in units of 1/255
};

/// The table of a standard deviation in units of the pixels' range, made in fixed point with 192 bits after the point,
/// which no rounding of a library and no processor has a part in. sums are cut at -c and c + 1, c = max(1, floor(6
/// sigma)). Error(usage): sigma is not in [1/1024, 16]. Error(integrity): an entry lies too near to an integer to be
/// known (its chance is below 2^-30).
[[nodiscard]] GridNoise grid_noise(double sigma);
/// Returns whether the integer below a number is known, of which these are the first 64 bits after the point: not
/// within 2^-40 of an integer.
[[nodiscard]] bool integer_is_known(std::uint64_t behind);

}  // namespace dat
