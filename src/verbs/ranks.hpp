#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "communicate/handshake.hpp"
#include "communicate/together.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// Runs a verb between MPI_Init and MPI_Finalize and returns its exit code. An error of one rank ends all of them:
/// nobody waits in a collective.
[[nodiscard]] int with_ranks(const std::function<int(Communicator&)>& verb);

/// Runs a part of a verb, and returns its exit code, where all ranks agree on it, also that of its error; another error
/// is thrown.
[[nodiscard]] int agreed_code(Communicator& world, const std::function<int()>& part);

/// Facts that ranks must share before they do anything together: program, libraries, verb, options (settings: name and
/// value of each).
[[nodiscard]] Facts facts_of(const std::string& verb, const std::vector<std::pair<std::string, std::string>>& settings);

/// Empties the buffer of standard output. Error(io): it takes no more.
void require_printed();

/// Does the work of a verb without MPI, `text`, and prints its result: in every process, wherever it is started, for no
/// other does the same. Returns the exit code: done. Error(io): standard output takes no more.
[[nodiscard]] int print_result(const std::function<std::string()>& text);
/// Prints a text that rank 0 makes. Returns the exit code: done. **Collective.** Errors are those of all ranks.
[[nodiscard]] int print_of_root(Communicator& world, const std::function<std::string()>& text);
/// Prints a text that is equal on all ranks of a launch, on the first one only.
[[nodiscard]] int print_once(const std::function<std::string()>& text);

}  // namespace dat
