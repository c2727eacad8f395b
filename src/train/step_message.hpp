#pragma once

#include <cstddef>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// A part of the training that has numbers to sum over the ranks once per step.
class MessagePart {
 public:
  virtual ~MessagePart() = default;
  [[nodiscard]] virtual std::size_t places() const = 0;  ///< numbers; the same in every step and on every rank
  /// Queues copies of what the device has found out, if that is needed. `ticket`: of the last one.
  virtual void fetch(Backend::Ticket& /*ticket*/) {}
  /// Writes this rank's numbers [places]. What was fetched is there.
  virtual void write(double* to) = 0;
  /// Reads their sums over the ranks [places].
  virtual void read(const double* from) = 0;
};

/// The second message of a step: small numbers of all parts, with one wait for the device and one sum over the ranks.
/// (The first one is the gradient's.)
class StepMessage {
 public:
  StepMessage(Communicator& ranks, Backend& backend) : ranks_(ranks), backend_(backend) {}
  /// Reserves places for a part, which must outlive this. While the training is built.
  void add(MessagePart& part);
  /// **Collective.** Allocates nothing.
  void sum();
  /// What one rank sends; 0 with one rank.
  [[nodiscard]] std::int64_t bytes_sent() const;

 private:
  Communicator& ranks_;
  Backend& backend_;
  std::vector<MessagePart*> parts_;
  std::vector<double> numbers_;
};

/// Any rank's wish to end the run after this step, told to all.
class StopVote final : public MessagePart {
 public:
  bool wish = false;  ///< this rank's
  [[nodiscard]] bool agreed() const { return agreed_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void write(double* to) override { *to = wish ? 1 : 0; }
  void read(const double* from) override { agreed_ = *from > 0; }

 private:
  bool agreed_ = false;
};

}  // namespace dat
