#pragma once

#include <sched.h>

#include <functional>
#include <optional>
#include <string>

namespace dat {

/// sched_getaffinity of this process.
using Affinity = std::function<int(std::size_t bytes, cpu_set_t* cores)>;
/// Number of cores that this process may run on, however many the machine has; 1: the system does not say.
[[nodiscard]] int cores_allowed(const Affinity& ask = [](std::size_t bytes, cpu_set_t* cores) {
  return sched_getaffinity(0, bytes, cores);
});

/// The cores' worth of time that control groups leave this process: the least quota of its own group and those above
/// it, in version 2 (cpu.max) and version 1 (cpu.cfs_quota_us, cpu.cfs_period_us; Linux, cgroup-v2.rst, sched-bwc.rst).
/// root: the folder in which proc/self and the mounted groups are looked for, "" but in tests. None: no quota.
[[nodiscard]] std::optional<double> cores_of_groups(const std::string& root = "");

/// The number that OMP_NUM_THREADS asks for, of a list the first; none: it says nothing that OpenMP would take.
[[nodiscard]] std::optional<int> threads_of_openmp(const char* value);

/// Default number of threads of a rank, and the reason.
struct Cores {
  int count = 1;
  std::string source;  ///< e.g. "a quota of 1.5 cores of its control group"
};

/// Cores that the machine gives a rank: those that it is bound to, or its fair share of the node's, and no more than
/// its share of a quota. known: what there is, where it is not to be asked for.
struct KnownCores {
  int bound = 1;                  ///< cores that this process may run on
  int all = 1;                    ///< cores of the node
  std::optional<double> quota{};  ///< result of cores_of_groups()
};
[[nodiscard]] Cores cores_of_rank(int ranks_on_node, const KnownCores& known);
[[nodiscard]] Cores cores_of_rank(int ranks_on_node);

/// Default number of threads, but OMP_NUM_THREADS counts before it.
[[nodiscard]] Cores default_threads(int ranks_on_node);

/// Threads of one rank: `wanted`, or, where that is 0, those of default_threads().
[[nodiscard]] int choose_threads(int wanted, int ranks_on_node = 1);

}  // namespace dat
