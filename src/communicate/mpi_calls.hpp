#pragma once

#include "communicate/progress.hpp"

namespace dat {

/// Error(communication) unless the message that `about` describes has the `expected` number of bytes.
void check_length(const Turn& turn, const MPI_Status& about, int expected);

/// Error(communication) unless `status`, of the MPI function `call`, is MPI_SUCCESS. from: whose message it was about.
/// Called with the turn.
void check_status(int status, const char* call, int from = MPI_ANY_SOURCE);

/// Ends all ranks of the run through MPI_Abort, each with this exit code.
[[noreturn]] void end_all_ranks(int exit_code);

}  // namespace dat
