#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/half.hpp"
#include "dat/options/generators.hpp"
#include "train/generators/messages.hpp"
#include "train/message/held_weights.hpp"

namespace dat {

/// The numbers of a version of the weights in a message: as they are, or rounded to bfloat16 (--generator-weights).
class VersionNumbers {
 public:
  VersionNumbers(std::int64_t count, bool rounded)
      : count_(static_cast<std::size_t>(count)), rounded_(rounded), scratch_(rounded ? count_ : 0) {}

  /// Bytes of the numbers in a message.
  [[nodiscard]] std::size_t bytes() const { return count_ * (rounded_ ? sizeof(BFloat16) : sizeof(float)); }
  /// Place where the numbers are to be written before pack(). message: as long as the message is used.
  [[nodiscard]] float* room(std::byte* message) {
    return rounded_ ? scratch_.data() : reinterpret_cast<float*>(message);
  }
  void pack(std::byte* message) const {
    std::ranges::transform(scratch_, reinterpret_cast<BFloat16*>(message), Stored<BFloat16>::from);
  }
  /// The numbers [count] of a message, until the next call.
  [[nodiscard]] const float* unpack(const std::byte* message) {
    if (!rounded_) return reinterpret_cast<const float*>(message);
    const auto* const from = reinterpret_cast<const BFloat16*>(message);
    std::transform(from, from + count_, scratch_.begin(), [](BFloat16 x) { return to_float(x); });
    return scratch_.data();
  }

 private:
  std::size_t count_;
  bool rounded_;
  std::vector<float> scratch_;  ///< [count], or none
};

/// Sends versions of the weights to the generators that have them from this trainer: each generator has them from one.
class VersionSender {
 public:
  /// ranks: the trainers; generators are those of the launch after them. The references must outlive it. meanwhile:
  /// what is done again and again while it waits; so whoever cannot take a version yet can be rid of its answers.
  VersionSender(Communicator& ranks, Replica& replica, const GeneratorSettings& settings,
                std::function<void()> meanwhile);

  /// Sends a version, and waits for the one that was sent two versions ago. from: where it is kept; null: the network
  /// has it. Returns bytes that have been given to MPI.
  std::int64_t send(std::int64_t version, const HeldWeights* from);
  /// Versions so far.
  [[nodiscard]] std::int64_t sent() const { return sent_; }
  /// Waits until all that is under way has arrived.
  void finish();

 private:
  struct Sending {
    VersionPacket packet;
    std::vector<std::pair<int, Request>> requests{};  ///< to each of this trainer's generators
  };
  void finish(Sending& sending);

  Communicator &ranks_, &launch_;
  Replica& replica_;
  int generators_;
  std::function<void()> meanwhile_;
  VersionNumbers numbers_;
  std::vector<Sending> sending_;  ///< two, in turn; none where no generator has its weights from this trainer
  std::int64_t sent_ = 0;
};

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
