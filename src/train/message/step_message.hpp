#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "reduce/sums/summation_tree.hpp"

namespace dat {

/// Rule by which the ranks' numbers become one where some ranks may lie.
struct Tolerance {
  int faults = 0;  ///< number of ranks that may lie, less than half of them
  /// [ranks] the part of a step's images that is each rank's; 1 all together. 0: what it says does not count.
  std::vector<double> shares;
};

/// Numbers of a part from each rank.
struct RankNumbers {
  const double* first = nullptr;  ///< rank r's begin at first + r * stride
  std::size_t stride = 0;
  int ranks = 0, faults = 0;
};

/// A part of the training that has numbers to sum over the ranks once per step.
class MessagePart {
 public:
  virtual ~MessagePart() = default;
  [[nodiscard]] virtual std::size_t places() const { return 0; }  ///< numbers, as many in every step and on every rank
  /// Queues copies of what the device has found out, if that is needed. `ticket` becomes the ticket of the last copy.
  virtual void fetch(Backend::Ticket& /*ticket*/) {}
  /// Writes the numbers of one of this rank's units of work [places], once in a step and unit. The fetched numbers are
  /// there. Numbers that are the rank's and not a unit's go where is written first; others have 0 in their places.
  virtual void write(double* /*to*/, int /*unit*/) {}
  /// Reads the sums of the part's numbers over the ranks [places].
  virtual void read(const double* /*from*/) {}

  /// Estimate of the sum over the ranks where some may lie: each rank's numbers, divided by its share, are its estimate
  /// of the sum. trimmed_mean: the mean without the highest and the lowest ones, as many as there may be faults, number
  /// by number; median: the lower median, number by number.
  enum class Estimate : std::uint8_t { trimmed_mean, median };
  [[nodiscard]] virtual Estimate estimate() const { return Estimate::trimmed_mean; }
  /// Reads, in place of read(), what each rank says, where a sum is not what the part wants. False: read() is wanted.
  virtual bool read_each(const RankNumbers& /*said*/) { return false; }
};

/// The second message of a step: small numbers of all parts, with one wait for the device and one sum over the ranks.
/// (The first message is the gradient's.) Where units of work have an order, their numbers are added up in it. Where
/// some ranks may say anything, every rank gets what each rank says, and makes of it what the parts read; a rank that
/// says something of a part that is not finite does not count for it, and where more do than may be at fault, the part
/// reads NaN.
class StepMessage {
 public:
  /// order: the order of the units of work of all ranks; null: each rank has one unit, and MPI adds up as it likes.
  /// tolerance: null: all ranks are believed.
  StepMessage(Communicator& ranks, Backend& backend, const SummationTree* order = nullptr,
              std::optional<Tolerance> tolerance = {});
  /// Reserves places for a part, which must outlive the message. To be called while the training is built.
  void add(MessagePart& part);
  /// Queues the copies of what the device has found out, ahead of the next sum(); what they take must stay until the
  /// ticket has arrived.
  Backend::Ticket fetch_ahead();
  /// Fetches, unless that has been queued, writes, sums and reads the numbers of all parts. **Collective.** Allocates
  /// nothing.
  void sum();
  /// Fetches and writes this rank's numbers, where some ranks may lie and the numbers are gathered elsewhere.
  [[nodiscard]] std::span<const double> write_own();
  /// Has the parts read what all ranks have said: all [ranks][numbers], with these shares of the step's images.
  void read_said(std::span<const double> all, std::span<const double> shares);
  [[nodiscard]] std::size_t numbers() const { return numbers_.size(); }
  /// Bytes that this rank has sent; 0 with one rank.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  void write(double* to, int unit);
  void sum_in_order();
  void fetch();
  void read();
  void estimate(MessagePart& part, std::size_t at);

  Communicator& ranks_;
  Backend& backend_;
  const SummationTree* order_;
  std::vector<MessagePart*> parts_;
  std::vector<double> numbers_;
  std::int64_t bytes_sent_ = 0;
  static constexpr Backend::Ticket kNone = -1;
  Backend::Ticket fetched_ = kNone;  ///< ticket of the last copy
  // Members for a fixed order:
  std::optional<TreeFold> fold_;
  std::optional<TreeSum<double>> sum_;
  std::vector<double> partial_;  ///< [places of this rank][numbers]
  // Members for ranks that may lie:
  std::optional<Tolerance> tolerance_;
  std::vector<double> all_;     ///< [ranks][numbers]
  std::vector<double> sorted_;  ///< estimates of the ranks that count
  std::vector<int> counted_;    ///< these ranks
};

/// Vote of a rank, by each of its units of work: that it wishes to end the run after this step, and that it has seen a
/// number that is not finite. Both counts share a place: the length of the message decides on the order in which MPI
/// adds up.
class Vote final : public MessagePart {
 public:
  bool wish = false, bad = false;  ///< votes of this rank; bad: to be set before the other parts write
  /// Returns whether any rank wishes to end; where some may lie, rank 0 or more ranks than these.
  [[nodiscard]] bool stop_agreed() const { return stop_; }
  /// Returns whether any rank has seen a number that is not finite; where some may lie, more ranks than these.
  [[nodiscard]] bool bad_agreed() const { return bad_agreed_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void write(double* to, int /*unit*/) override { *to = static_cast<double>(wish) + (bad ? kMore : 0); }
  void read(const double* from) override {
    bad_agreed_ = *from >= kMore;
    stop_ = std::fmod(*from, kMore) > 0;
  }
  bool read_each(const RankNumbers& said) override;

 private:
  static constexpr double kMore = 0x1p26;  ///< more than there are units of work; sums of both are exact
  bool stop_ = false, bad_agreed_ = false;
};

}  // namespace dat
