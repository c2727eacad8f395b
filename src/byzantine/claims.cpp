// A step of the protocol: claims about the result, and what follows from them.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "byzantine/protocol.hpp"
#include "dat/aggregator.hpp"

namespace dat {

void Protocol::check_claims() {
  if (interrupted()) return;
  const auto ranks = static_cast<std::size_t>(ranks_);
  const std::uint64_t mine_unfinished{work_.unfinished()};
  Round round(ranks_, sizeof mine_unfinished + ranks * sizeof(Claim));
  std::vector<Claim> own(ranks);
  work_.claims(keys_, own, norms_);
  std::memcpy(round.mine.bytes().data(), &mine_unfinished, sizeof mine_unfinished);
  std::memcpy(round.mine.bytes().data() + sizeof mine_unfinished, own.data(), ranks * sizeof(Claim));
  if (!meet(round, Topic::claims)) return;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::span<const std::byte> said = round.of(rank).bytes;
    std::memcpy(&unfinished_[static_cast<std::size_t>(rank)], said.data(), sizeof mine_unfinished);
    std::memcpy(claims_.data() + static_cast<std::size_t>(rank) * ranks, said.data() + sizeof mine_unfinished,
                ranks * sizeof(Claim));
  }
  std::vector<Claim> right(ranks);
  const auto me = static_cast<std::size_t>(me_);
  work_.claims_received(keys_[me], right);
  std::uint64_t accused = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (contributes(static_cast<int>(rank)) && !same(claims_[rank * ranks + me], right[rank]))
      accused |= Disputes::bit(static_cast<int>(rank));
  Round naming(ranks_, sizeof accused);
  std::memcpy(naming.mine.bytes().data(), &accused, sizeof accused);
  if (!meet(naming, Topic::accusations)) return;
  std::vector<std::uint64_t> all(ranks);
  for (int rank = 0; rank < ranks_; ++rank)
    std::memcpy(&all[static_cast<std::size_t>(rank)], naming.of(rank).bytes.data(), sizeof accused);
  settle_accusations(all);
  for (int part = 0; part < ranks_ && !interrupted(); ++part)
    if (must_look(part)) look_at(part);
}

double Protocol::claimed_distance(int rank) const {
  double squares = contributes(rank) ? 0 : std::nan("");
  for (int part = 0; part < ranks_; ++part) {
    const double norm = claims_[static_cast<std::size_t>(rank * ranks_ + part)].norm;
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

bool Protocol::same(const Claim& one, const Claim& other) {
  return std::memcmp(&one, &other, sizeof one) == 0;  // NaN, too
}

Rule Protocol::differing(const Claim& said, const Claim& right) {
  return std::bit_cast<std::uint64_t>(said.norm) != std::bit_cast<std::uint64_t>(right.norm) ? Rule::norm
                                                                                             : Rule::product;
}

/// accused: [ranks] a bit for each rank whose claim is said to be false by who has aggregated the part that it is
/// about.
void Protocol::settle_accusations(std::span<const std::uint64_t> accused) {
  const auto ranks = static_cast<std::size_t>(ranks_);
  for (int by = 0; by < ranks_; ++by)
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto part = static_cast<std::size_t>(by);
      if ((accused[part] & Disputes::bit(rank)) == 0 || !contributes(rank) || banned(by) || banned(rank)) continue;
      shown_.resize(work_.part_bytes(by));
      const std::span<const std::byte> shown = show(rank, by, by, shown_);
      if (banned(rank)) continue;
      const Claim right = work_.claim(by, keys_[part], shown),
                  said = claims_[static_cast<std::size_t>(rank) * ranks + part];
      const bool lied = !same(said, right);
      accuse(by, rank, lied ? differing(said, right) : Rule::norm, lied);
      if (!lied) accuse(rank, by, Rule::accusation, true);
    }
}

/// Returns whether all ranks must look at how a part of the result was made. v is where the cut differences d_i cancel
/// out: F(v) = sum w_i d_i / sum w_i is 0 there. v -> v + F(v) does not take two points further apart, so after a step
/// of length |F| <= enough, |F(v)| <= enough; v's rounding to f32 adds |v| / 2^24. The direction z is drawn when v
/// stands, its numbers are uniform in [-1, 1], so <z, F> is beyond 8 |F| / sqrt(3) with a probability below 2 e^-32.
/// Where most differences are long, or v so long that its rounding says nothing, liars could make the sum of the claims
/// small for a v that is wrong. Not so where tau is clip_length(): T(v) = v + F(v) brings any two points nearer
/// together, so no v that is far off has a small F; there F changes by up to twice as much as v does.
bool Protocol::must_look(int part) const {
  const auto ranks = static_cast<std::size_t>(ranks_), j = static_cast<std::size_t>(part);
  if (unfinished_[j] != 0) return true;
  std::array<double, kMostRanks> norms{}, weights{};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    norms[rank] = claims_[rank * ranks + j].norm;
    weights[rank] = std::isfinite(norms[rank]) ? weights_[rank] : 0;
  }
  const bool given = options_.tau > 0;
  const double tau = given ? options_.tau : clip_length({norms.data(), ranks}, {weights.data(), ranks});
  double total = 0, weight = 0, far = 0, length = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double w = weights[rank], norm = norms[rank];
    if (w == 0) continue;
    weight += w;
    total += w * claims_[rank * ranks + j].product * std::min(1.0, tau / norm);
    length += w * std::min(norm, tau);
    if (norm > 2 * tau) far += w;
  }
  const double rounding = norms_[j] * 0x1p-24;
  const double bound = options_.enough + (given ? 1 : 2) * rounding + 1e-12 * length / weight;
  if (given && (2 * far > weight || rounding > 0.01 * tau)) return true;
  // Without any weight both sides are NaN.
  return !(std::abs(total) / weight <= 8 / std::sqrt(3.0) * bound);
}

/// All contributions to the part are shown, and everybody makes it of them. The rank that has aggregated it leaves if
/// it is another one, or if a claim about it is false that it has passed over; so does who has made that claim.
void Protocol::look_at(int part) {
  const auto ranks = static_cast<std::size_t>(ranks_), j = static_cast<std::size_t>(part);
  const std::size_t bytes = work_.part_bytes(part);
  shown_.assign(ranks * bytes, std::byte{0});
  for (int rank = 0; rank < ranks_; ++rank)
    if (contributes(rank))
      (void)show(rank, part, part, std::span(shown_).subspan(static_cast<std::size_t>(rank) * bytes, bytes));
  if (interrupted()) return;
  bool unfinished;
  if (!work_.aggregated(part, shown_, unfinished) || unfinished != (unfinished_[j] != 0))
    return accuse(-1, part, Rule::aggregate, true);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!contributes(static_cast<int>(rank))) continue;
    const Claim right = work_.claim(part, keys_[j], std::span(shown_).subspan(rank * bytes, bytes));
    const Claim& said = claims_[rank * ranks + j];
    if (same(said, right)) continue;
    accuse(-1, static_cast<int>(rank), differing(said, right), true);
    accuse(-1, part, Rule::withheld, true);
  }
}

}  // namespace dat
