#include "byzantine/draw.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace dat {

namespace {

[[nodiscard]] std::uint64_t word_of(const Sha256Digest& digest) {
  std::uint64_t word;
  std::memcpy(&word, digest.data(), sizeof word);
  return word;
}

}  // namespace

std::vector<Check> draw_checks(const Sha256Digest& randomness, std::span<const char> contributed, int validators) {
  std::int64_t count = 0;
  // Numbers below `end`, some of them likelier by end / 2^64.
  const auto below = [&](std::size_t end) {
    return word_of(digest_of("draw", {bytes_of(randomness), bytes_of(count++)})) % end;
  };
  std::vector<int> others(contributed.size()), targets, eligible;
  std::iota(others.begin(), others.end(), 0);
  for (const int rank : others)
    if (contributed[static_cast<std::size_t>(rank)] != 0) targets.push_back(rank);
  std::vector<Check> checks;
  for (int k = 0; k < validators && !others.empty(); ++k) {
    const auto validator = others.begin() + static_cast<std::ptrdiff_t>(below(others.size()));
    eligible.clear();
    std::ranges::copy_if(targets, std::back_inserter(eligible), [&](int rank) { return rank != *validator; });
    if (!eligible.empty()) {
      const int target = eligible[below(eligible.size())];
      checks.push_back({.validator = *validator, .target = target});
      std::erase(targets, target);
    }
    others.erase(validator);
  }
  return checks;
}

std::uint64_t direction_key(const Sha256Digest& randomness, int part) {
  return word_of(digest_of("direction", {bytes_of(randomness), bytes_of(part)}));
}

}  // namespace dat
