#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "reduce/summation_tree.hpp"

namespace dat {

/// A part of the training that has numbers to sum over the ranks once per step.
class MessagePart {
 public:
  virtual ~MessagePart() = default;
  [[nodiscard]] virtual std::size_t places() const = 0;  ///< numbers; the same in every step and on every rank
  /// Queues copies of what the device has found out, if that is needed. `ticket`: of the last one.
  virtual void fetch(Backend::Ticket& /*ticket*/) {}
  /// Writes the numbers of one of this rank's units of work [places]. What was fetched is there. What is the rank's and
  /// not a unit's belongs to unit 0; the others have 0 there.
  virtual void write(double* to, int unit) = 0;
  /// Reads their sums over the ranks [places].
  virtual void read(const double* from) = 0;
};

/// The second message of a step: small numbers of all parts, with one wait for the device and one sum over the ranks.
/// (The first one is the gradient's.) Where units of work have an order, their numbers are added up in it.
class StepMessage {
 public:
  /// order: of the units of work of all ranks; null: each rank has one, and MPI adds up as it likes.
  StepMessage(Communicator& ranks, Backend& backend, const SummationTree* order = nullptr);
  /// Reserves places for a part, which must outlive this. While the training is built.
  void add(MessagePart& part);
  /// **Collective.** Allocates nothing.
  void sum();
  /// What this rank has sent; 0 with one rank.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  void write(double* to, int unit);
  void sum_in_order();

  Communicator& ranks_;
  Backend& backend_;
  const SummationTree* order_;
  std::vector<MessagePart*> parts_;
  std::vector<double> numbers_;
  std::int64_t bytes_sent_ = 0;
  // Where there is an order:
  std::optional<TreeFold> fold_;
  std::optional<TreeSum<double>> sum_;
  std::vector<double> partial_;  ///< [places of this rank][numbers]
};

/// Any rank's wish to end the run after this step, told to all.
class StopVote final : public MessagePart {
 public:
  bool wish = false;  ///< this rank's
  [[nodiscard]] bool agreed() const { return agreed_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void write(double* to, int unit) override { *to = wish && unit == 0 ? 1 : 0; }
  void read(const double* from) override { agreed_ = *from > 0; }

 private:
  bool agreed_ = false;
};

}  // namespace dat
