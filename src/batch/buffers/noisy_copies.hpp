#pragma once

#include <cstdint>

#include "dat/backend.hpp"

namespace dat {

/// Gaussian noise in front of the network, and the memory for what it is shown: N copies of each image, side by side.
/// The numbers of a copy depend on the sample, on `time` and the seed, and on nothing else.
class NoisyCopies {
 public:
  /// capacity: most images at a time; elements: of the largest image.
  NoisyCopies(Backend& backend, double sigma, int copies, std::int64_t capacity, std::int64_t elements);

  /// Numbers that do not change from epoch to epoch: those of evaluations.
  static constexpr std::uint32_t kEvaluation = 0xFFFFFFFF;

  /// The copies of the images [n] at x, valid until the next call: [n * copies] images. Queued.
  const float* of(const float* x, const std::int64_t* sample_ids, const Layout& layout, int n, std::uint64_t seed,
                  std::uint32_t time);
  [[nodiscard]] int copies() const { return copies_; }

 private:
  Backend& backend_;
  float sigma_;
  int copies_;
  float* images_;
};

}  // namespace dat
