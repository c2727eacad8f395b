#pragma once

#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// Notices for the user about the chosen devices: no GPU for `auto`, ranks that share one. On rank 0. **Collective.**
[[nodiscard]] std::vector<std::string> device_notices(Communicator& ranks, const Backend& backend,
                                                      const std::string& wanted);

}  // namespace dat
