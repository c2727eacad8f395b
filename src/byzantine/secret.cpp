#include "byzantine/secret.hpp"

namespace dat {

Secret::Secret(std::uint64_t seed, int rank, const std::string& words)
    : key_(digest_of("secret", {bytes_of(seed), bytes_of(rank), std::as_bytes(std::span(words))})) {}

Sha256Digest Secret::of(const char* what, std::int64_t step, std::int64_t ranks, std::int64_t index) const {
  return digest_of(what, {bytes_of(key_), bytes_of(step), bytes_of(ranks), bytes_of(index)});
}

Sha256Digest Secret::salt(std::int64_t step, int ranks, int index) const { return of("salt", step, ranks, index); }
Sha256Digest Secret::share(std::int64_t step, int ranks) const { return of("share", step, ranks, 0); }

}  // namespace dat
