#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// Visitor of the arrays of state that are equal on all ranks, one after the other. Names are for messages. Memory on
/// the host comes in words of four bytes.
class ReplicatedState {
 public:
  virtual ~ReplicatedState() = default;
  /// floats [count] on the backend's device.
  virtual void device(const std::string& name, float* data, std::int64_t count) = 0;
  virtual void host(const std::string& name, void* data, std::size_t bytes) = 0;
  /// Returns whether the arrays may have other contents afterwards.
  [[nodiscard]] virtual bool writes() const { return false; }
};

/// A part of the training that may have state of its own. Such a part writes its own entries of a checkpoint, and reads
/// them into a part that has just been made. So going back to a checkpoint within a run is what going on from it in
/// another process is.
class Stateful {
 public:
  virtual ~Stateful() = default;
  /// Adds the state to rank 0's checkpoint, which knows its step already. The checkpoints of other ranks are not looked
  /// at; these ranks help where the state is spread over the ranks. **Collective.**
  virtual void save(Checkpoint& /*checkpoint*/) {}
  /// Takes the state from a checkpoint, on rank 0. Error(checkpoint): the state does not fit; Error(usage): the options
  /// do not.
  virtual void restore(const Checkpoint& /*checkpoint*/) {}
  /// The checkpoint was made with other options: what is restored of a step that is under way is not gone on with. On
  /// rank 0, after restore().
  virtual void forget_step_under_way() {}
  /// Gives rank 0's state to all ranks. **Collective.**
  virtual void share(Communicator& /*ranks*/) {}
  /// Shows what must be equal on all ranks, in the same order every time, and takes it up as it is then.
  virtual void replicated(ReplicatedState&) {}
};

/// Entries of a checkpoint. Error(checkpoint): there is none of this name.
[[nodiscard]] std::int64_t integer_of(const Checkpoint& checkpoint, const char* name);
[[nodiscard]] const std::vector<double>& doubles_of(const Checkpoint& checkpoint, const char* name);

/// A text or number that not every checkpoint has; else empty, or 0.
template <class T>
[[nodiscard]] T value_of(const std::map<std::string, T>& values, const std::string& name) {
  return values.contains(name) ? values.at(name) : T();
}

/// Brings rank 0's doubles, as many as it has, to all ranks. **Collective.**
void share_doubles(Communicator& ranks, std::vector<double>& values);
/// Brings rank 0's floats [count] on the device to all ranks. **Collective.**
void share_floats(Communicator& ranks, Backend& backend, float* device, std::int64_t count);
/// The floats of all ranks [ranks][count], on rank 0; empty elsewhere. **Collective.**
[[nodiscard]] std::vector<float> gather_floats(Communicator& ranks, std::vector<float> mine);
/// This rank's floats [count] of those of all ranks [ranks][count], which rank 0 has. **Collective.**
[[nodiscard]] std::vector<float> deal_floats(Communicator& ranks, std::vector<float> all, std::size_t count);

}  // namespace dat
