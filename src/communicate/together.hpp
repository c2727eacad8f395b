#pragma once

#include <functional>
#include <string>

#include "dat/communicator.hpp"
#include "dat/error.hpp"

namespace dat {

/// An error that all ranks know of, and that one of them has printed.
struct Agreed {
  ExitCode code;
};

/// Runs `part`, which calls no collective, on all ranks. Where it fails on some, the first of them says why, and all
/// ranks leave the verb together: Agreed is thrown. **Collective.**
void together(Communicator& ranks, const std::function<void()>& part);

/// Returns whether an error of this code is found in numbers that all ranks share, so that all of them have it.
[[nodiscard]] inline bool is_shared(ExitCode code) {
  return code == ExitCode::numerical || code == ExitCode::integrity;
}

/// The exception being handled, in the program's own terms.
[[nodiscard]] Error current_error();

/// Prints "dat_hpc: error: MESSAGE" to standard error.
void complain(const std::string& message);

}  // namespace dat
