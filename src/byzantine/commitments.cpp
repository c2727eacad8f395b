// A step of the protocol: commitments to gradients, and to the messages between ranks.

#include <algorithm>
#include <cassert>
#include <cstring>

#include "byzantine/protocol.hpp"

namespace dat {

namespace {

[[nodiscard]] Sha256Digest digest_at(std::span<const std::byte> bytes, std::size_t number) {
  Sha256Digest digest;
  std::memcpy(digest.data(), bytes.data() + number * sizeof digest, sizeof digest);
  return digest;
}
void put(std::span<std::byte> bytes, std::size_t number, const Sha256Digest& digest) {
  std::memcpy(bytes.data() + number * sizeof digest, digest.data(), sizeof digest);
}

}  // namespace

Sha256Digest root_of_numbers(std::span<const double> numbers) { return digest_of("numbers", {std::as_bytes(numbers)}); }

Sha256Digest root_of_findings(std::span<const double> numbers, std::span<const Claim> claims) {
  return digest_of("findings", {std::as_bytes(numbers), std::as_bytes(claims)});
}

void Protocol::commit(std::span<const double> numbers) {
  assert(numbers.size() == count_);
  std::ranges::copy(numbers, own_numbers_.begin());
  const PendingChecks& pending = state_.pending;
  const auto ranks = static_cast<std::size_t>(ranks_);
  // A group gets no larger: what a validator says has as many parts as the group of the step before.
  const std::size_t places = pending.checks.empty() ? ranks : std::max(ranks, static_cast<std::size_t>(pending.ranks));
  Round round(ranks_, (places + 2) * sizeof(Sha256Digest));
  const std::span<std::byte> mine = round.mine.bytes();
  const auto salted = [&](int index, const Sha256Digest& root) {
    return commitment(secret_.salt(step_, ranks_, index), root);
  };
  if (const PendingCheck* const check = own_check()) {
    const Contribution* const story = mischief_ != nullptr ? mischief_->story(*check) : nullptr;
    const Contribution& found = story != nullptr ? *story : work_.redo(pending, *check);
    for (std::size_t part = 0; part < found.roots.size(); ++part) put(mine, part, found.roots[part]);
    put(mine, places, root_of_findings(found.numbers, found.claims));
  } else {
    work_.own_roots(roots_);
    for (int part = 0; part < ranks_; ++part)
      put(mine, static_cast<std::size_t>(part), salted(part, roots_[static_cast<std::size_t>(part)]));
    put(mine, places, salted(ranks_, root_of_numbers(own_numbers_)));
  }
  put(mine, places + 1, salted(ranks_ + 1, secret_.share(step_, ranks_)));
  if (!meet(round, Topic::commit)) return;
  commitments_.assign(ranks * (ranks + 2), {});
  findings_.assign(pending.checks.size() * (static_cast<std::size_t>(pending.ranks) + 1), {});
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::span<const std::byte> said = round.of(rank).bytes;
    Sha256Digest* const of_rank = commitments_.data() + static_cast<std::size_t>(rank) * (ranks + 2);
    for (std::size_t part = 0; part < ranks; ++part) of_rank[part] = digest_at(said, part);
    of_rank[ranks] = digest_at(said, places);
    of_rank[ranks + 1] = digest_at(said, places + 1);
  }
  for (std::size_t k = 0; k < pending.checks.size(); ++k) {
    const std::span<const std::byte> said = round.of(rank_of(pending.checks[k].validator)).bytes;
    const auto parts = static_cast<std::size_t>(pending.ranks);
    for (std::size_t part = 0; part < parts; ++part) findings_[k * (parts + 1) + part] = digest_at(said, part);
    findings_[k * (parts + 1) + parts] = digest_at(said, places);
  }
}

void Protocol::check_parts() {
  if (interrupted()) return;
  const auto ranks = static_cast<std::size_t>(ranks_);
  Letter letter(sizeof(Sha256Digest));
  std::vector<std::byte> to(ranks * letter.block_bytes()), from(to.size());
  for (int rank = 0; rank < ranks_; ++rank) {
    put(letter.bytes(), 0, secret_.salt(step_, ranks_, rank));
    letter.seal();
    falsify(Topic::salts, letter);
    std::memcpy(to.data() + static_cast<std::size_t>(rank) * letter.block_bytes(), letter.block(),
                letter.block_bytes());
  }
  assembly_.exchange(to.data(), from.data(), letter.block_bytes());
  work_.received_roots(roots_);
  std::uint64_t complaints = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!contributes(rank)) continue;
    const auto r = static_cast<std::size_t>(rank);
    const Heard salt = Letter::read(from.data() + r * letter.block_bytes(), sizeof(Sha256Digest));
    const Sha256Digest& said = commitments_[r * (ranks + 2) + static_cast<std::size_t>(me_)];
    if (salt.how != Heard::How::well || commitment(digest_at(salt.bytes, 0), roots_[r]) != said)
      complaints |= Disputes::bit(rank);
  }
  // Beside complaints, targets show the salts of the step before.
  const PendingChecks& pending = state_.pending;
  const auto parts = pending.checks.empty() ? std::size_t{0} : static_cast<std::size_t>(pending.ranks);
  Round round(ranks_, sizeof complaints + parts * sizeof(Sha256Digest));
  std::memcpy(round.mine.bytes().data(), &complaints, sizeof complaints);
  const auto is_mine = [&](const PendingCheck& check) { return check.target == name(me_); };
  if (std::ranges::any_of(pending.checks, is_mine))
    for (std::size_t part = 0; part < parts; ++part)
      put(round.mine.bytes().subspan(sizeof complaints), part,
          secret_.salt(pending.step, pending.ranks, static_cast<int>(part)));
  if (!meet(round, Topic::complaints)) return;
  opened_.clear();
  for (const PendingCheck& check : pending.checks)
    for (std::size_t part = 0; part < parts; ++part)
      opened_.push_back(digest_at(round.of(rank_of(check.target)).bytes.subspan(sizeof complaints), part));
  std::vector<std::uint64_t> all(ranks);
  for (int rank = 0; rank < ranks_; ++rank)
    std::memcpy(&all[static_cast<std::size_t>(rank)], round.of(rank).bytes.data(), sizeof complaints);
  settle_disputes(all);
}

std::span<const std::byte> Protocol::show(int rank, int part, int by, std::span<std::byte> place) {
  const std::size_t bytes = work_.part_bytes(part);
  Letter letter(sizeof(Sha256Digest) + bytes);
  if (rank == me_) {
    put(letter.bytes(), 0, secret_.salt(step_, ranks_, part));
    const std::span<const std::byte> own = work_.own_part(part);
    std::ranges::copy(own, letter.bytes().begin() + sizeof(Sha256Digest));
    letter.seal();
    falsify(Topic::show, letter);
  }
  assembly_.broadcast(letter.block(), letter.block_bytes(), rank);
  const Heard said = Letter::read(letter.block(), sizeof(Sha256Digest) + bytes);
  if (said.how != Heard::How::well) {
    accuse(by, rank, said.how == Heard::How::nothing ? Rule::silence : Rule::malformed, true);
    return {};
  }
  const std::span<const std::byte> data = said.bytes.subspan(sizeof(Sha256Digest));
  const std::size_t at = static_cast<std::size_t>(rank) * (static_cast<std::size_t>(ranks_) + 2);
  if (commitment(digest_at(said.bytes, 0), work_.root(data)) != commitments_[at + static_cast<std::size_t>(part)]) {
    accuse(by, rank, Rule::commitment, true);
    return {};
  }
  std::ranges::copy(data, place.begin());
  return place.first(bytes);
}

/// complaints: [ranks] a bit for each rank that has sent this one something else than it has committed to, or nothing.
/// A sender that does not show it leaves; one that does has had a dispute, as who complains has, and whoever has more
/// of these than there may be liars leaves: liars have no more with an honest rank.
void Protocol::settle_disputes(std::span<const std::uint64_t> complaints) {
  Disputes& disputes = state_.disputes;
  const auto complains = [&](int by, int of) {
    return by != of && contributes(of) && (complaints[static_cast<std::size_t>(by)] & Disputes::bit(of)) != 0;
  };
  // Ranks that complain about so many are liars, whatever they have sent, and nobody has to look.
  for (int by = 0; by < ranks_; ++by) {
    std::uint64_t of = 0;
    for (int rank = 0; rank < ranks_; ++rank) of |= complains(by, rank) ? Disputes::bit(name(rank)) : 0;
    if (of != 0 && disputes.count(name(by), of) > options_.faults) accuse(-1, by, Rule::disputes, true);
  }
  for (int rank = 0; rank < ranks_; ++rank)
    for (int by = 0; by < ranks_; ++by) {
      if (!complains(by, rank) || banned(by) || banned(rank)) continue;
      shown_.resize(work_.part_bytes(by));
      const std::span<const std::byte> shown = show(rank, by, by, shown_);
      if (banned(rank)) continue;
      accuse(by, rank, Rule::commitment, false);
      if (by == me_) work_.replace(rank, shown);
      disputes.note(name(rank), name(by));
      for (const int one : {rank, by})
        if (disputes.count(name(one)) > options_.faults) accuse(-1, one, Rule::disputes, true);
    }
}

}  // namespace dat
