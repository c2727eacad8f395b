#pragma once

#include <cstddef>
#include <cstdint>

#include "dat/backend.hpp"
#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// A number that depends on every byte that is added, in their order.
class Digest {
 public:
  void add(const void* host, std::size_t bytes);
  /// floats [count] on the backend's device.
  void add(Backend& backend, const float* device, std::int64_t count);
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// A part of the training that has state of its own. It writes its own entries of a checkpoint, and reads them.
class Stateful {
 public:
  virtual ~Stateful() = default;
  /// Adds the state to rank 0's checkpoint. The other ranks' are not looked at; they help where the state is spread
  /// over the ranks. **Collective.**
  virtual void save(Checkpoint& checkpoint) = 0;
  /// Takes the state from a checkpoint, on rank 0. Error(checkpoint): it does not fit; Error(usage): the options do
  /// not.
  virtual void restore(const Checkpoint& checkpoint) = 0;
  /// Gives rank 0's state to all ranks. **Collective.**
  virtual void share(Communicator& ranks) = 0;
  /// Adds what must be equal on all ranks.
  virtual void digest(Digest&) const {}
};

/// Entries of a checkpoint. Error(checkpoint): there is none of this name.
[[nodiscard]] std::int64_t integer_of(const Checkpoint& checkpoint, const char* name);
[[nodiscard]] const std::vector<double>& doubles_of(const Checkpoint& checkpoint, const char* name);

/// Rank 0's floats [count] on the device to all ranks. **Collective.**
void share_floats(Communicator& ranks, Backend& backend, float* device, std::int64_t count);

}  // namespace dat
