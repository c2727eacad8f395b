#pragma once

#include <string>

namespace dat {

/// "24h" -> "24:00:00", "2d" -> "2-00:00:00", "1h30m" -> "01:30:00", "90 min" -> "01:30:00": a time as Slurm writes it.
/// Empty: this is no time with units.
[[nodiscard]] std::string slurm_time_of(const std::string& text);

}  // namespace dat
