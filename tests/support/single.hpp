#pragma once

#include "dat/communicator.hpp"

namespace dat::test {

/// A rank without others.
[[nodiscard]] inline Communicator& single() {
  static Communicator& one = *Communicator::single().release();  // outlives what records its calls
  return one;
}

}  // namespace dat::test
