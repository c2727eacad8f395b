#pragma once

#include <string>

namespace dat {

/// Model of the CPU and cores of this process: "AMD EPYC 9B14, 4 of its 96 cores for this process".
[[nodiscard]] std::string cpu_text();

/// Memory of the node, what is free of it, and a limit of control groups that is less. root: the folder in which proc
/// and the mounted groups are looked for, "" but in tests.
[[nodiscard]] std::string memory_text(const std::string& root = "");

/// Free space where a run without --out is written.
[[nodiscard]] std::string disk_text();

/// Version of gnuplot, which plot wants.
[[nodiscard]] std::string gnuplot_text();

/// What starts ranks here, mpirun or Slurm, and whether it is of the MPI of this program. library: that one's version.
[[nodiscard]] std::string launcher_text(const std::string& library);

}  // namespace dat
