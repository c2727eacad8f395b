#pragma once

#include <vector>

#include "dat/communicator.hpp"
#include "train/generators/messages.hpp"
#include "train/generators/version_numbers.hpp"
#include "train/message/held_weights.hpp"

namespace dat {

/// The last versions of the weights that a trainer has sent, on a generator's device.
class ReceivedVersions {
 public:
  /// count: how many are kept; from: the trainer; rounded: as VersionNumbers has it. The references must outlive it.
  ReceivedVersions(Communicator& launch, int from, Replica& replica, int count, bool rounded);
  ~ReceivedVersions();
  ReceivedVersions(const ReceivedVersions&) = delete;
  ReceivedVersions& operator=(const ReceivedVersions&) = delete;

  /// Versions begin with number `first`. From now on two messages can arrive beside the caller's work.
  void begin(std::int64_t first);
  /// Takes what has arrived, without waiting, into memory that is not in use. Returns whether a version has.
  /// Error(communication): it has another length, is not whole, or not the next one.
  bool take();
  [[nodiscard]] std::int64_t first() const { return first_; }
  [[nodiscard]] std::int64_t newest() const { return newest_; }  ///< below first(): none has come
  /// Versions that have come since begin().
  [[nodiscard]] std::int64_t count() const { return newest_ - first_ + 1; }
  [[nodiscard]] bool has(std::int64_t version) const { return version >= first_ && version <= newest_; }
  /// Gives the network a version that is kept.
  void use(std::int64_t version);

 private:
  struct Arrival {
    VersionPacket packet;
    Request request{};
  };
  /// Has the next message received there.
  void receive_in(Arrival& arrival);

  Communicator& launch_;
  int from_;
  std::vector<HeldWeights> held_;  ///< weights by version
  VersionNumbers numbers_;
  std::vector<Arrival> arrivals_;  ///< [2], used in turns
  std::size_t next_ = 0;           ///< index in arrivals_ of the next one
  bool receiving_ = false;
  std::int64_t first_ = 0, newest_ = -1, in_use_ = -1;
};

}  // namespace dat
