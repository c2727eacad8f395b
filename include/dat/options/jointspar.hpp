#pragma once

#include <string>

#include "dat/selector.hpp"

namespace dat {

/// Mean number of active layers, of so many, where none is named.
[[nodiscard]] constexpr double default_budget(double layers) { return layers * 40.0 / 54.0; }

/// Choice of the layers that a step trains; a budget of 0 stands for default_budget() of them. Rows and rules:
/// src/options/train/jointspar.cpp.
struct JointSparSettings : SelectorSettings {
  std::string selector = "exp3";
  std::string budget_unit = "layers";  ///< layers | bytes | seconds
  std::string granularity = "tensor";  ///< tensor | module | block
  std::string resample = "step";       ///< step | epoch | a number of steps
  std::string mask = "shared";         ///< shared: all ranks train the same layers | per_worker: each draws its own

  friend bool operator==(const JointSparSettings&, const JointSparSettings&) = default;
};

}  // namespace dat
