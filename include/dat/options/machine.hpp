#pragma once

#include <cstdint>
#include <string>

namespace dat {

/// Device of a verb, and patience of its ranks with each other. Rows: src/options/machine.hpp.
struct MachineSettings {
  std::string device = "auto";  ///< auto | cpu | cuda
  int threads = 0;              ///< per rank; 0: the cores of the node shared fairly
  /// Products of f32 numbers: f32 | tf32 (where the GPU has it) | bf16 | bf16x3 (a CPU with AMX).
  std::string math = "tf32";
  bool deterministic = false;    ///< algorithms by rule, sums in the order of micro-batches (sums_are_ordered)
  std::uint64_t seed = 1;        ///< seed of every random number
  double planning_seconds = 30;  ///< time for trials of GPU algorithms
  double comm_timeout = 120;     ///< seconds without progress after which the run hangs; 0: any
  bool quiet = false;

  friend bool operator==(const MachineSettings&, const MachineSettings&) = default;
};

}  // namespace dat
