#pragma once

#include <cstddef>
#include <cstdint>

#include "dat/backend.hpp"

namespace dat {

/// Memory of messages: pinned host memory, to which they are copied from the device and from which they return; or the
/// messages themselves, where they lie in host memory. Device memory never goes to MPI: an MPI that takes it copies it
/// to the host itself, and does not do so beside other work.
class MessageMemory {
 public:
  explicit MessageMemory(Backend& backend);
  void reserve(std::int64_t bytes);

  [[nodiscard]] std::byte* device(std::int64_t at) const { return device_ + at; }
  [[nodiscard]] std::byte* host(std::int64_t at) const { return host_ + at; }  ///< the part that MPI gets
  /// Queues the way to MPI. The ticket arrives at its end.
  [[nodiscard]] Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) const;
  /// Queues the return.
  void send(std::int64_t at, std::int64_t bytes) const;

 private:
  Backend& backend_;
  bool staged_;  ///< MPI gets copies
  std::byte *device_ = nullptr, *host_ = nullptr;
};

}  // namespace dat
