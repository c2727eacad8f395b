#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "byzantine/digest.hpp"

namespace dat {

/// Numbers that a rank alone knows before it shows them: salts of commitments, and its share of the randomness that all
/// ranks make together. All of it follows from one secret and the step, so a run that goes on, or is repeated, finds
/// the same.
class Secret {
 public:
  /// words: what nobody else knows. Empty: the secret is one of the seed and the rank, and whoever knows the program
  /// can compute it, which is enough for a simulation. rank: of the launch.
  Secret(std::uint64_t seed, int rank, const std::string& words)
      : key_(digest_of("secret", {bytes_of(seed), bytes_of(rank), std::as_bytes(std::span(words))})) {}

  /// ranks: of the group. A step that is done once more, by those who are left, has other numbers.
  [[nodiscard]] Sha256Digest salt(std::int64_t step, int ranks, int index) const {
    return of("salt", step, ranks, index);
  }
  [[nodiscard]] Sha256Digest share(std::int64_t step, int ranks) const { return of("share", step, ranks, 0); }

 private:
  [[nodiscard]] Sha256Digest of(const char* what, std::int64_t step, std::int64_t ranks, std::int64_t index) const {
    return digest_of(what, {bytes_of(key_), bytes_of(step), bytes_of(ranks), bytes_of(index)});
  }
  Sha256Digest key_;
};

}  // namespace dat
