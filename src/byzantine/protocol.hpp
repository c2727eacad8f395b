#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "byzantine/assembly.hpp"
#include "byzantine/draw.hpp"
#include "byzantine/mischief.hpp"
#include "byzantine/secret.hpp"
#include "byzantine/work.hpp"
#include "dat/aggregator.hpp"

namespace dat {

/// Pairs of ranks that have had a dispute about a message between them, which the sender could show in the end. At
/// least one of the two has lied, and nobody knows which one. Ranks have their numbers of the launch.
class Disputes {
 public:
  void note(int one, int other) {
    of(one) |= bit(other);
    of(other) |= bit(one);
  }
  /// A rank has left, and nobody's dispute with it counts any more.
  void forget(int rank) {
    for (std::uint64_t& with : with_) with &= ~bit(rank);
    of(rank) = 0;
  }
  /// Number of ranks with which a rank has had disputes, if those of `more`, a bit each, are added. A rank with more
  /// disputes than there may be liars is one.
  [[nodiscard]] int count(int rank, std::uint64_t more = 0) const {
    return std::popcount(with_[static_cast<std::size_t>(rank)] | more);
  }
  [[nodiscard]] static std::uint64_t bit(int rank) { return std::uint64_t{1} << static_cast<unsigned>(rank); }

  [[nodiscard]] const std::array<std::uint64_t, kMostRanks>& all() const { return with_; }
  [[nodiscard]] std::array<std::uint64_t, kMostRanks>& all() { return with_; }

 private:
  [[nodiscard]] std::uint64_t& of(int rank) { return with_[static_cast<std::size_t>(rank)]; }
  std::array<std::uint64_t, kMostRanks> with_{};
};

/// Rule by which a rank is found out.
enum class Rule : std::uint8_t {
  silence,     ///< nothing was said where something was due
  malformed,   ///< the message has another length
  commitment,  ///< the shown data is not what was committed to
  disputes,    ///< disputes about messages with more ranks than there may be liars
  reveal,      ///< the share of the randomness was not shown
  norm,        ///< a claim about |d| is false
  product,     ///< a claim about <z, d> is false
  withheld,    ///< a false claim about one's own part was passed over
  accusation,  ///< a true claim was called false
  aggregate,   ///< a part of the result is not what follows from the contributions
  gradient,    ///< the contribution of the step before is not what its work gives
  validation,  ///< another rank's work has not been done once more, or was called wrong
};
[[nodiscard]] const char* name_of(Rule rule);

/// Numbers of ranks are those of the launch.
struct Accusation {
  std::int64_t step = 0;
  int by = -1;  ///< -1: all have seen it
  int rank = 0;
  Rule rule = Rule::silence;
  bool upheld = false;
};
struct Ban {
  std::int64_t step = 0;
  int rank = 0, by = -1;
  Rule rule = Rule::silence;
  [[nodiscard]] bool operator==(const Ban&) const = default;
};

struct ProtocolOptions {
  int faults = 0;               ///< ranks that may say anything
  int validators = 1;           ///< most validators of a step
  double tau = 0;               ///< tau of CenteredClip: see AggregatorOptions
  double enough = 0;            ///< the length of a step of its iteration at which it is at rest
  std::vector<double> weights;  ///< [ranks] of their contributions
};

/// State between steps, equal on all ranks.
struct ProtocolState {
  PendingChecks pending;
  Disputes disputes;
};

/// BTARD (Gorbunov, Borzunov, Diskin, Ryabinin, "Secure Distributed Training at Scale", ICML 2022) by bits: every rank
/// commits to its gradient before it sees others', every part is aggregated by one rank and checked by all, and some
/// ranks do others' work once more. Where two say different things, all look, and who has lied is banned.
///
/// A step is the sequence of the calls below, on all ranks. Ranks found out in one of them are in bans(), the same on
/// all ranks, and the calls after it do nothing: the step must then be done once more without these ranks. Nothing
/// of a step stays but by end(). All that is said to all has the same order on all ranks; nothing is believed that a
/// single rank says, and an honest rank is never banned while no more than `faults` ranks lie.
class Protocol {
 public:
  Protocol(Assembly& assembly, Work& work, ProtocolOptions options, Secret secret, std::size_t numbers);
  /// Sets the lies of this rank from now on; null: it is honest.
  void act(Mischief* mischief) { mischief_ = mischief; }
  /// Begins a step.
  void begin(std::int64_t step);
  /// The check that this rank makes in this step in place of its own work. Null: it does its own.
  [[nodiscard]] const PendingCheck* own_check() const;
  /// [ranks] of the group; 0: a validator's.
  [[nodiscard]] std::span<const double> weights() const { return weights_; }

  /// (a) Commitments to the parts of this rank's gradient, to its numbers and to its share of the randomness; of a
  /// validator, what it has found in place of its target's.
  void commit(std::span<const double> numbers);
  /// (b) Once parts have been exchanged: salts; who has got something else than it should, or nothing, says so, and all
  /// look at it. Targets of the step before show their salts.
  void check_parts();
  /// (d) Once the result is there: shares of the randomness, and numbers.
  void reveal();
  /// Numbers of all ranks: rank r's begin at numbers() + r * count; of validators, zeros.
  [[nodiscard]] const std::vector<double>& numbers() const { return said_; }
  /// (e) Claims about all parts, and what follows from them for those who made them and those who aggregated.
  void check_claims();
  /// Distance of a rank's gradient from the result, over all parts, as the rank claims; NaN: it has brought none.
  [[nodiscard]] double claimed_distance(int rank) const;
  /// (f) Checks of the step before.
  void validate();
  /// The step stands: draws the checks of the next one, and keeps what they want.
  void end();

  [[nodiscard]] const std::vector<Ban>& bans() const { return bans_; }
  /// Bytes that a rank of so many says in a step without accusations, beside gradients. checks: whether anybody checks
  /// another rank in it, as in every step but the first.
  [[nodiscard]] static std::int64_t bytes(int ranks, std::size_t numbers, bool checks);
  /// Accusations since the last call.
  [[nodiscard]] std::vector<Accusation> take_accusations();
  [[nodiscard]] const ProtocolState& state() const { return state_; }
  /// Restores the state from before a rank left, or a run stopped: checks of ranks that have gone are dropped.
  void restore(ProtocolState state);

 private:
  [[nodiscard]] bool interrupted() const { return !bans_.empty(); }
  [[nodiscard]] bool contributes(int rank) const { return weights_[static_cast<std::size_t>(rank)] > 0; }
  [[nodiscard]] int name(int rank) const { return assembly_.launch_rank(rank); }
  /// The rank of the group with this number of the launch; -1: it is not there.
  [[nodiscard]] int rank_of(int launch_rank) const;
  [[nodiscard]] bool banned(int rank) const;
  /// Bans the rank where it is `upheld`. by: -1: all have seen it.
  void accuse(int by, int rank, Rule rule, bool upheld);
  /// Has this rank's lies change a message before it leaves.
  void falsify(Topic topic, Letter& letter) {
    if (mischief_ != nullptr) mischief_->message(topic, letter, own_check() != nullptr);
  }
  /// Has every rank say something, and bans those who say nothing or something of another length. False: somebody is
  /// banned.
  [[nodiscard]] bool meet(Round& round, Topic phase, Rule silence = Rule::silence);
  /// Has a rank show a part of its contribution, with its salt; empty: it does not, or it is not what it has committed
  /// to, and is banned.
  [[nodiscard]] std::span<const std::byte> show(int rank, int part, int by, std::span<std::byte> place);
  void settle_disputes(std::span<const std::uint64_t> complaints);
  [[nodiscard]] static bool same(const Claim& one, const Claim& other);
  [[nodiscard]] static Rule differing(const Claim& said, const Claim& right);
  void settle_accusations(std::span<const std::uint64_t> accused);
  [[nodiscard]] bool must_look(int part) const;
  void look_at(int part);
  void judge(std::size_t check);

  Assembly& assembly_;
  Work& work_;
  ProtocolOptions options_;
  Secret secret_;
  Mischief* mischief_ = nullptr;  ///< null: this rank is honest
  int ranks_, me_;
  std::size_t count_;  ///< numbers
  ProtocolState state_;

  std::int64_t step_ = 0;
  std::vector<double> weights_, own_numbers_, said_;
  std::vector<Sha256Digest> roots_, commitments_;  ///< [ranks]; [ranks][ranks + 2]
  std::vector<Sha256Digest> findings_;             ///< [checks][ranks of the step before + 1] of the validators
  std::vector<Sha256Digest> opened_;               ///< [checks][ranks of the step before] salts
  std::vector<Claim> claims_;                      ///< [ranks][parts]
  std::vector<double> norms_;                      ///< [parts] |v|
  std::vector<std::uint64_t> unfinished_;          ///< [parts]
  std::vector<std::uint64_t> keys_;                ///< [parts]
  std::vector<std::byte> shown_;                   ///< contributions of all ranks to a part
  Sha256Digest randomness_{};
  std::vector<Ban> bans_;
  std::vector<Accusation> accusations_;
};

/// Root of the numbers, for commitments and findings.
[[nodiscard]] Sha256Digest root_of_numbers(std::span<const double> numbers);
[[nodiscard]] Sha256Digest root_of_findings(std::span<const double> numbers, std::span<const Claim> claims);

}  // namespace dat
