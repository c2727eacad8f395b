#pragma once

#include "communicate/progress.hpp"

namespace dat {

/// Error(communication) unless the message that `about` describes has the `expected` number of bytes.
void check_length(const Turn& turn, const MPI_Status& about, int expected);

/// Ends all ranks of the run through MPI_Abort, each with this exit code.
[[noreturn]] void end_all_ranks(int exit_code);

}  // namespace dat
