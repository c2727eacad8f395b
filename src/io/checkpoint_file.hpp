#pragma once

#include "dat/checkpoint.hpp"
#include "io/hdf5_reader.hpp"

namespace dat {

// What read_checkpoint and read_weights do behind the seal. Error(checkpoint).
[[nodiscard]] Checkpoint read_checkpoint(const Hdf5Reader& file);
[[nodiscard]] Checkpoint read_weights(const Hdf5Reader& file);

}  // namespace dat
