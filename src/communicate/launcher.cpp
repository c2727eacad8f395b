// What launchers and the host tell a process before MPI is started.

#include <unistd.h>

#include <cstdlib>

#include "dat/communicator.hpp"

namespace dat {

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
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

int rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

}  // namespace dat
