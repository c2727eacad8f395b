#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "communicate/handshake.hpp"
#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "dat/dataset.hpp"

namespace dat {

/// Runs a verb between MPI_Init and MPI_Finalize and returns its exit code. An error of one rank ends all of them:
/// nobody waits in a collective.
[[nodiscard]] int with_ranks(const std::function<int(Communicator&)>& verb);

/// Runs `part`, which calls no collective, on all ranks. Where it fails on some, the first of them says why, and all
/// ranks leave the verb together. **Collective.**
void together(Communicator& world, const std::function<void()>& part);

/// What ranks must have in common before they do anything together: program, libraries, verb, options (settings: name
/// and value of each).
[[nodiscard]] Facts facts_of(const std::vector<std::pair<std::string, std::string>>& settings, int argc, char** argv);
/// content_hash() of images; nothing for a rank that has nobody to compare it with. Error(data).
[[nodiscard]] std::string hash_to_compare(const Communicator& world, const Dataset& images);
/// Ends the verb with the code of a usage error on all ranks, once one has printed in what they differ. **Collective.**
void shake_hands(Communicator& world, const Facts& facts);

/// Error(io): standard output takes no more.
void require_printed();

/// Prints, on the launch's first rank, what `text` returns there, for verbs without MPI. Returns the exit code: done.
/// Error(io): standard output takes no more.
[[nodiscard]] int print_once(const std::function<std::string()>& text);

/// The message of the exception being handled.
[[nodiscard]] std::string current_message();

/// What the user should know of the devices that were chosen: no GPU for `auto`, ranks that share one. On rank 0.
/// **Collective.**
[[nodiscard]] std::vector<std::string> device_notices(Communicator& world, const Backend& backend,
                                                      const std::string& wanted);

}  // namespace dat
