#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/error.hpp"

namespace dat {

/// Norm of a perturbation, over all pixels and channels of an image: the largest entry (linf), or the root of the sum
/// of the squares (l2).
enum class BallNorm : std::uint8_t { linf, l2 };

/// The norms as options call them.
[[nodiscard]] inline std::vector<std::string> norm_names() { return {"linf", "l2"}; }
[[nodiscard]] inline std::string name_of(BallNorm norm) { return norm == BallNorm::linf ? "linf" : "l2"; }
/// The norm of this name. Error(usage): there is no such norm.
[[nodiscard]] inline BallNorm norm_from(const std::string& name) {
  require(name == "linf" || name == "l2", ExitCode::usage, "unknown norm '", name, "'; known: linf, l2");
  return name == "linf" ? BallNorm::linf : BallNorm::l2;
}
/// Refuses an L-infinity radius or step above 1, which is all of [0, 1], and most likely meant in grey levels. `option`
/// is named in the message. Error(usage).
inline void require_in_range(const std::string& option, BallNorm norm, double value) {
  require(norm != BallNorm::linf || value <= 1, ExitCode::usage, option, " ", value,
          " is more than 1, and pixels are in [0, 1]; grey levels are written as 8/255");
}

}  // namespace dat
