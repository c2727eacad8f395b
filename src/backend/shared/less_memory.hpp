#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dat/backend.hpp"

namespace dat {

/// Returns whether memory for this purpose is for the network's parameters, and as much with any batch.
[[nodiscard]] inline bool is_of_network(const std::string& purpose) {
  for (const char* one : {"weights", "gradients", "running statistics", "packed weights", "optimizer state"})
    if (purpose == one) return true;
  return false;
}

/// Advice where `bytes` more for `purpose` are not there. capacity: bytes of memory that there are at all.
[[nodiscard]] inline std::string less_memory(const std::vector<Backend::Allocation>& held, std::size_t bytes,
                                             const std::string& purpose, std::size_t capacity) {
  std::size_t of_network = is_of_network(purpose) ? bytes : 0;
  for (const Backend::Allocation& one : held) of_network += is_of_network(one.purpose) ? one.bytes : 0;
  if (of_network <= capacity) return "; take a smaller --micro-batch or --width";
  return ": what the network's parameters need is more than all memory, " + std::to_string(capacity >> 20U) +
         " MiB, and a smaller --micro-batch does not help; take a smaller --width, or another --network";
}

}  // namespace dat
