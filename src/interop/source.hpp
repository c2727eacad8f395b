#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "interop/state_dict.hpp"

namespace dat {

/// What a file of weights has, whoever has written it, and what it says of it.
struct Source {
  StateDict state;
  std::string config;       ///< options of `train` that the file names, as key = value lines; empty: none
  std::int64_t size = 0;    ///< of the images; 0: unknown; -1: no number
  std::string class_names;  ///< one a line; empty: unknown
};

/// Reads a safetensors file, a state_dict in HDF5, a checkpoint, or the newest one of a run; damaged ones of these are
/// named to `warn`. Error(checkpoint): it is none of them; of a pickle or an ONNX graph the message says what to do.
[[nodiscard]] Source read_source(const std::string& path, const std::function<void(const std::string&)>& warn);

/// What such a file, or the folder of a run, says of its options alone, without a look at its weights where that is
/// possible.
[[nodiscard]] std::string config_of_source(const std::string& path);

/// Whether a file is HDF5: a checkpoint, or a state_dict.
[[nodiscard]] bool is_hdf5_of_weights(const std::string& path);

/// Error(checkpoint): values that are not finite, or a negative variance, with which nothing can be computed.
void check_values(const StateDict& state, const std::string& file);

}  // namespace dat
