// Information that launchers and the host give a process before MPI is started.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "dat/communicator.hpp"

namespace dat {

namespace {

/// The number that one of these variables begins with, the first one that there is; at least `least`.
[[nodiscard]] int number_from(std::initializer_list<const char*> names, int least) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return std::max(least, std::atoi(value));
  return least;
}

}  // namespace

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name);
  return name;
}

bool launched() {
  // Without a launcher one too many does no harm: MPI is started.
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI_PORT", "PMI_ID",
        "MPI_LOCALRANKID", "MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE", "MPT_MPI_RANK", "SLURM_STEP_ID",
        "SLURM_STEPID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "PALS_RANKID", "ALPS_APP_PE"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

bool another_rank_speaks() {
  return number_from({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"}, 0) > 0;
}

int announced_ranks() {
  return number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"}, 1);
}

int started_together() {
  return number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
}

int announced_ranks_on_node() {
  // Slurm announces "2(x4),1": the first number.
  return number_from({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE",
                      "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"},
                     1);
}

}  // namespace dat
