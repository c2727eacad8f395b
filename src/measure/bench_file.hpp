#pragma once

#include <string>

namespace dat {

/// The step that bench has measured.
struct MeasuredStep {
  std::string network;
  int size = 0;             ///< height = width of its images
  double images_per_s = 0;  ///< images per second of a rank
};

/// The step in a bench.json. Error(data): it is none.
[[nodiscard]] MeasuredStep read_measured_step(const std::string& path);

}  // namespace dat
