#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dat/backend.hpp"

namespace dat {

/// Parts of the peak resident memory of a process. Memory is counted as the system does (VmHWM, ru_maxrss, Slurm on a
/// process): pages of files that are mapped, such as the code of libraries, count; the page cache does not; pages that
/// processes share count in each of them.
struct ProcessMemory {
  struct Part {
    std::string purpose;
    std::size_t bytes;
  };
  std::size_t buffers = 0;  ///< the backend's in the host's memory; of a GPU's none
  /// All else that is resident when everything is planned: code, libraries and what they keep, labels, batches of
  /// evaluations.
  std::size_t program = 0;
  std::vector<Part> more{};  ///< parts that are added later
  std::size_t before = 0;    ///< the peak until now
  [[nodiscard]] std::size_t peak() const;
};

/// Memory of this process, in which everything has been planned. more: parts that are still missing; a part of 0 bytes
/// is left out.
[[nodiscard]] ProcessMemory process_memory(const Backend& backend, const std::vector<ProcessMemory::Part>& more);
/// Text for people: the peak, and a line for each part.
[[nodiscard]] std::string text_of(const ProcessMemory& memory);

/// Memory of MPI, and of code that runs for the first time, beyond that: some 11 MB with Open MPI 4.1 and 1 to 3 ranks
/// (docs/results/2026-11-28-memory.txt).
constexpr std::size_t kMemoryOfMpi = 11 << 20;

/// Peak resident memory of the whole process so far, in MiB.
[[nodiscard]] double peak_resident_mb();

}  // namespace dat
