#pragma once

#include <functional>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/options/generators.hpp"
#include "train/generators/messages.hpp"
#include "train/generators/version_numbers.hpp"
#include "train/message/held_weights.hpp"

namespace dat {

/// Sends versions of the weights to the generators that have them from this trainer: each generator has them from one.
class VersionSender {
 public:
  /// ranks: the trainers; generators are those of the launch after them. The references must outlive it. meanwhile:
  /// what is done again and again while it waits; so whoever cannot take a version yet can be rid of its answers.
  VersionSender(Communicator& ranks, Replica& replica, const GeneratorSettings& settings,
                std::function<void()> meanwhile);

  void begin() { sent_ = 0; }
  /// Sends a version, and waits for the one that was sent two versions ago. from: where it is kept; null: the network
  /// has it. Returns bytes that have been given to MPI.
  std::int64_t send(std::int64_t version, const HeldWeights* from);
  /// Versions since begin().
  [[nodiscard]] std::int64_t sent() const { return sent_; }
  /// Waits until all that is under way has arrived.
  void finish();

 private:
  struct Sending {
    VersionPacket packet;
    std::vector<Request> requests{};  ///< one for each of this trainer's generators
  };
  void finish(Sending& sending);

  Communicator &ranks_, &launch_;
  Replica& replica_;
  int generators_;
  std::function<void()> meanwhile_;
  VersionNumbers numbers_;
  std::vector<Sending> sending_;  ///< two, in turn
  std::int64_t sent_ = 0;
};

}  // namespace dat
