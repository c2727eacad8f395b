#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

struct SetFlag {
  double* flag;
  DAT_HD void operator()(std::int64_t) const { *flag = 1; }
};

/// *flag becomes 0 where a number of a step is not finite: one of the losses of the images that are there, of the batch
/// statistics, or of the sums. Before, *flag is 1. Runs over size().
struct AllFinite {
  const float* losses;  ///< [passes][stride], of which the first `images` of each pass count
  std::int64_t passes, stride, images;
  const float* statistics;
  std::int64_t count;
  const double* sums;  ///< [first], then from number `from` on [rest]
  std::int64_t first, from, rest;
  double* flag;
  [[nodiscard]] std::int64_t size() const { return passes * images + count + first + rest; }
  DAT_HD void operator()(std::int64_t i) const {
    if (i < passes * images) return look(losses[i / images * stride + i % images]);
    i -= passes * images;
    if (i < count) return look(statistics[i]);
    i -= count;
    look(sums[i < first ? i : from + i - first]);
  }

 private:
  DAT_HD void look(double value) const {
    if (value - value != 0) *flag = 0;  // all who write it write this
  }
};

}  // namespace dat::kernels
