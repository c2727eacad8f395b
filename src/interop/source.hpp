#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "interop/state_dict.hpp"

namespace dat {

/// The weights of a file, whoever has written it, and what the file says of them.
struct Source {
  StateDict state;
  std::string config;     ///< options of `train` that the file names, as key = value lines; empty: it names none
  std::int64_t size = 0;  ///< height = width of the images; 0: unknown; -1: the file has something that is no number
  std::vector<std::string> class_names;  ///< empty: unknown
};

/// Reads a safetensors file, a state_dict in HDF5, a checkpoint, or the newest checkpoint of a run; damaged checkpoints
/// are named to `warn`. Error(checkpoint): `path` is none of these; for a pickle or an ONNX graph the message says what
/// to do.
[[nodiscard]] Source read_source(const std::string& path, const std::function<void(const std::string&)>& warn);
/// Reads a source in two parts: HDF5, from its place; empty: it is not HDF5. And all else.
[[nodiscard]] std::optional<Checkpoint> read_hdf5_source(const std::string& path,
                                                         const std::function<void(const std::string&)>& warn);
[[nodiscard]] Source read_tensors(const std::string& path);

/// The options (Source::config) of a file that read_source() takes, or of a run's folder, without a look at the weights
/// where that is possible.
[[nodiscard]] std::string config_of_source(const std::string& path);

/// Refuses values that are not finite, and negative variances, with which nothing can be computed. Error(checkpoint).
void check_values(const StateDict& state, const std::string& file);

}  // namespace dat
