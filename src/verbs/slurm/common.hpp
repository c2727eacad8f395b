#pragma once

namespace dat {

/// The text of jobs/slurm/common.sh, as it was when the program was configured.
extern const char* const kSlurmCommon;

}  // namespace dat
