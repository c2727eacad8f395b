#pragma once

#include <string>
#include <utility>
#include <vector>

#include "communicate/hang/listed.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// Facts about a rank: names and values, one line each.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Differences between the ranks, on rank 0: for each such fact its name, the values, and who has them, e.g.
///
///     lr is 0.1 on ranks 0 to 2 (node0, node1), 0.2 on rank 3 (node1)
///
/// Empty where nothing differs, and on the other ranks. `where` names this rank's place in such texts. Programs of
/// different versions must understand each other here: the calls and the form of the texts stay as they are.
/// **Collective.**
[[nodiscard]] std::string differences(Communicator& ranks, const Facts& facts, const std::string& where);

/// Ends the verb with the code of a usage error on all ranks, once one has printed in what they differ. **Collective.**
void shake_hands(Communicator& ranks, const Facts& facts);

}  // namespace dat
