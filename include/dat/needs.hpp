#pragma once

#include <algorithm>

namespace dat {

/// Data that a member of a family needs beside the images of a micro-batch and their labels. Members state their own
/// needs; the union of all needs is allocated, once (src/batch/buffers).
struct Needs {
  int scratch_images = 0;     ///< arrays the size of the images, in which attacks work (Objective::scratch)
  bool early_stop = false;    ///< programs of several sizes, for attacks that samples leave
  bool clean_logits = false;  ///< logits of the clean images, which a loss is taken against
  bool start_images = false;  ///< the images at which the attack takes its first gradient
  bool start_logits = false;  ///< the logits there
  bool clean_passes = false;  ///< training passes of images that are not attacked

  /// Needs that serve both.
  [[nodiscard]] friend Needs operator|(const Needs& a, const Needs& b) {
    return {.scratch_images = std::max(a.scratch_images, b.scratch_images),
            .early_stop = a.early_stop || b.early_stop,
            .clean_logits = a.clean_logits || b.clean_logits,
            .start_images = a.start_images || b.start_images,
            .start_logits = a.start_logits || b.start_logits,
            .clean_passes = a.clean_passes || b.clean_passes};
  }
};

}  // namespace dat
