#pragma once

#include "dat/communicator.hpp"

namespace dat::test {

/// The ranks that run this program.
[[nodiscard]] Communicator& world();

}  // namespace dat::test
