#pragma once

#include <span>
#include <vector>

#include "batch/buffers/buffers.hpp"

namespace dat {

/// Copies of the micro-batches of a rank's part of a step, in memory of their own: images, labels, numbers. All other
/// arrays are those of the last micro-batch.
class KeptBatches {
 public:
  /// Makes room for `count` micro-batches of at most `images` images. purpose: of the memory.
  KeptBatches(const Buffers& buffers, int count, int images, const char* purpose);

  void clear();
  /// Copies one more. Queued.
  void keep(const Batch& batch);
  [[nodiscard]] std::span<const Batch> all() const { return all_; }

 private:
  float *clean_, *x_adv_;     ///< each image array begins at whole groups, as kernels expect it of images
  std::int32_t* labels_;      ///< [count * images]
  std::int64_t* sample_ids_;  ///< [count * images]
  std::vector<Batch> all_;
  std::int64_t floats_ = 0;  ///< floats of the images kept so far
};

}  // namespace dat
