#pragma once

#include "dat/checkpoint.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {

// Reads the content of a checkpoint file after its seal, as read_checkpoint and read_weights do. Error(checkpoint).
[[nodiscard]] Checkpoint read_checkpoint(const Hdf5Reader& file);
[[nodiscard]] Checkpoint read_weights(const Hdf5Reader& file);

[[nodiscard]] std::string shape_text(const Shape& shape);  ///< such as "[3,2,5]"

/// Returns whether a batch norm has the tensor of this name beside its weights.
[[nodiscard]] inline bool is_statistic(const std::string& name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var");
}
/// End of the names of counters of batches, which PyTorch's batch norms have beside their statistics.
inline const char* const kBatchCounter = "num_batches_tracked";
/// The whole number that one stands for that was saved as a real number; 0: for none.
[[nodiscard]] inline std::int64_t count_of(double number) {
  constexpr double kMost = 0x1p62;
  return number >= 1 && number <= kMost ? static_cast<std::int64_t>(number) : 0;
}

}  // namespace dat
