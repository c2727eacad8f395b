#pragma once

#include <cstddef>
#include <cstdint>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// Memory of messages: pinned host memory, to which they are copied from the device and from which they return; or the
/// messages themselves, where they lie in host memory, or where MPI takes device memory and nothing goes beside other
/// work (Communicator::takes_device_memory).
class MessageMemory {
 public:
  /// blocking: MPI gets the messages in calls that return when they are done.
  MessageMemory(Backend& backend, Communicator& ranks, bool blocking);
  void reserve(std::int64_t bytes);

  [[nodiscard]] std::byte* device(std::int64_t at) const { return device_ + at; }
  [[nodiscard]] std::byte* host(std::int64_t at) const { return host_ + at; }  ///< what MPI gets
  /// Queues the way to MPI. The ticket arrives at its end.
  [[nodiscard]] Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) const;
  /// Queues the way back.
  void send(std::int64_t at, std::int64_t bytes) const;

 private:
  Backend& backend_;
  bool staged_;  ///< MPI gets copies
  std::byte *device_ = nullptr, *host_ = nullptr;
};

}  // namespace dat
