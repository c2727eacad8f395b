// A step of the protocol: randomness that no rank can foresee or choose, and the numbers that go with gradients.

#include <algorithm>
#include <cstring>

#include "byzantine/protocol.hpp"

namespace dat {

void Protocol::reveal() {
  if (interrupted()) return;
  struct Opening {
    Sha256Digest share, salt_of_share, salt_of_numbers;
  };
  const auto ranks = static_cast<std::size_t>(ranks_);
  Round round(ranks_, sizeof(Opening) + count_ * sizeof(double));
  const Opening mine{secret_.share(step_, ranks_), secret_.salt(step_, ranks_, ranks_ + 1),
                     secret_.salt(step_, ranks_, ranks_)};
  std::memcpy(round.mine.bytes().data(), &mine, sizeof mine);
  std::memcpy(round.mine.bytes().data() + sizeof mine, own_numbers_.data(), count_ * sizeof(double));
  if (!meet(round, Topic::reveal, Rule::reveal)) return;
  Sha256 all;
  all.add("randomness", sizeof "randomness");
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::span<const std::byte> said = round.of(rank).bytes;
    Opening opening;
    std::memcpy(&opening, said.data(), sizeof opening);
    double* const numbers = said_.data() + static_cast<std::size_t>(rank) * count_;
    std::memcpy(numbers, said.data() + sizeof opening, count_ * sizeof(double));
    const Sha256Digest* const committed = commitments_.data() + static_cast<std::size_t>(rank) * (ranks + 2);
    if (commitment(opening.salt_of_share, opening.share) != committed[ranks + 1])
      accuse(-1, rank, Rule::reveal, true);
    else if (!contributes(rank))
      std::fill(numbers, numbers + count_, 0.0);
    else if (commitment(opening.salt_of_numbers, root_of_numbers({numbers, count_})) != committed[ranks])
      accuse(-1, rank, Rule::commitment, true);
    all.add(opening.share.data(), opening.share.size());
  }
  randomness_ = all.digest();
  for (int part = 0; part < ranks_; ++part) keys_[static_cast<std::size_t>(part)] = direction_key(randomness_, part);
}

}  // namespace dat
