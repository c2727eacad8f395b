#pragma once

#include <string>
#include <vector>

namespace dat {

/// The names of the transports (src/reduce/transport/), in the order in which messages name them.
[[nodiscard]] std::vector<std::string> transport_names();

}  // namespace dat
