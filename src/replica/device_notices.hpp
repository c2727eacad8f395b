#pragma once

#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// "0, 1, 4, 5 on a, b": the hosts, each with its ranks' GPUs; empty where no host has several ranks. of_ranks: "HOST
/// GPU".
[[nodiscard]] std::string gpus_of_hosts(const std::vector<std::string>& of_ranks);

/// Notices for the user about the chosen devices: no GPU for `auto`, ranks that share one; quiet: warnings alone. On
/// rank 0, elsewhere none. **Collective.**
[[nodiscard]] std::vector<std::string> device_notices(Communicator& ranks, const Backend& backend,
                                                      const std::string& wanted, bool quiet = false);

}  // namespace dat
