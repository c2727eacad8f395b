#include "byzantine/protocol.hpp"

#include <algorithm>
#include <utility>

namespace dat {

const char* name_of(Rule rule) {
  constexpr const char* kNames[] = {"silence", "malformed", "commitment", "disputes",  "reveal",   "norm",
                                    "product", "withheld",  "accusation", "aggregate", "gradient", "validation"};
  return kNames[static_cast<std::size_t>(rule)];
}

Protocol::Protocol(Assembly& assembly, Work& work, ProtocolOptions options, Secret secret, std::size_t numbers)
    : assembly_(assembly),
      work_(work),
      options_(std::move(options)),
      secret_(std::move(secret)),
      ranks_(assembly.size()),
      me_(assembly.rank()),
      count_(numbers),
      weights_(options_.weights),
      own_numbers_(numbers),
      said_(static_cast<std::size_t>(ranks_) * numbers),
      roots_(static_cast<std::size_t>(ranks_)),
      claims_(static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(ranks_)),
      norms_(static_cast<std::size_t>(ranks_)),
      unfinished_(static_cast<std::size_t>(ranks_)),
      keys_(static_cast<std::size_t>(ranks_)) {}

void Protocol::begin(std::int64_t step) {
  step_ = step;
  weights_ = options_.weights;
  for (const PendingCheck& check : state_.pending.checks)
    weights_[static_cast<std::size_t>(rank_of(check.validator))] = 0;
}

const PendingCheck* Protocol::own_check() const {
  const auto& checks = state_.pending.checks;
  const auto found =
      std::ranges::find_if(checks, [&](const PendingCheck& check) { return check.validator == name(me_); });
  return found == checks.end() ? nullptr : &*found;
}

int Protocol::rank_of(int launch_rank) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (name(rank) == launch_rank) return rank;
  return -1;
}

bool Protocol::banned(int rank) const {
  return std::ranges::any_of(bans_, [&](const Ban& ban) { return ban.rank == name(rank); });
}

void Protocol::accuse(int by, int rank, Rule rule, bool upheld) {
  const int who = by == -1 ? -1 : name(by);
  accusations_.push_back({.step = step_, .by = who, .rank = name(rank), .rule = rule, .upheld = upheld});
  if (upheld && !banned(rank)) bans_.push_back({.step = step_, .rank = name(rank), .by = who, .rule = rule});
}

std::vector<Accusation> Protocol::take_accusations() { return std::exchange(accusations_, {}); }

bool Protocol::meet(Round& round, Topic phase, Rule silence) {
  round.mine.seal();
  falsify(phase, round.mine);
  round.meet(assembly_);
  for (int rank = 0; rank < ranks_; ++rank) {
    const Heard::How how = round.of(rank).how;
    if (how != Heard::How::well) accuse(-1, rank, how == Heard::How::nothing ? silence : Rule::malformed, true);
  }
  return !interrupted();
}

std::int64_t Protocol::bytes(int ranks, std::size_t numbers, bool checks) {
  const auto all = static_cast<std::size_t>(ranks);
  const std::size_t digest = sizeof(Sha256Digest), word = sizeof(std::uint64_t), head = Letter::kHead;
  const std::size_t commitments = head + (all + 2) * digest, salts = (all - 1) * (head + digest),
                    complaints = head + word + (checks ? all * digest : 0),
                    reveal = head + 3 * digest + numbers * sizeof(double), claims = head + word + all * sizeof(Claim),
                    accusations = head + word;
  return static_cast<std::int64_t>(commitments + salts + complaints + reveal + claims + accusations);
}

void Protocol::end() {
  PendingChecks& pending = state_.pending;
  pending = {.step = step_, .ranks = ranks_, .keys = keys_, .checks = {}};
  std::vector<char> contributed(static_cast<std::size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) contributed[static_cast<std::size_t>(rank)] = contributes(rank);
  const auto parts = static_cast<std::ptrdiff_t>(ranks_);
  const auto numbers = static_cast<std::ptrdiff_t>(count_);
  for (const Check& check : draw_checks(randomness_, contributed, options_.validators)) {
    const auto commitments = commitments_.begin() + check.target * (parts + 2);
    const auto said = said_.begin() + check.target * numbers;
    const auto claims = claims_.begin() + check.target * parts;
    pending.checks.push_back({.validator = name(check.validator),
                              .target = name(check.target),
                              .rank = check.target,
                              .commitments = {commitments, commitments + parts},
                              .numbers = {said, said + numbers},
                              .claims = {claims, claims + parts}});
  }
}

void Protocol::restore(ProtocolState state) {
  state_ = std::move(state);
  std::erase_if(state_.pending.checks,
                [&](const PendingCheck& check) { return rank_of(check.validator) < 0 || rank_of(check.target) < 0; });
  for (int rank = 0; rank < kMostRanks; ++rank)
    if (rank_of(rank) < 0) state_.disputes.forget(rank);
}

}  // namespace dat
