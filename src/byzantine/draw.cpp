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

/// Uniform numbers of a digest.
class Stream {
 public:
  explicit Stream(const Sha256Digest& randomness) : randomness_(randomness) {}
  /// Below `end`, some of them likelier by end / 2^64.
  [[nodiscard]] std::size_t below(std::size_t end) {
    return word_of(digest_of("draw", {bytes_of(randomness_), bytes_of(count_++)})) % end;
  }

 private:
  Sha256Digest randomness_;
  std::int64_t count_ = 0;
};

}  // namespace

std::vector<Check> draw_checks(const Sha256Digest& randomness, std::span<const char> contributed, int validators) {
  Stream stream(randomness);
  std::vector<int> others(contributed.size()), targets, eligible;
  std::iota(others.begin(), others.end(), 0);
  for (const int rank : others)
    if (contributed[static_cast<std::size_t>(rank)] != 0) targets.push_back(rank);
  std::vector<Check> checks;
  for (int k = 0; k < validators && !others.empty(); ++k) {
    const auto validator = others.begin() + static_cast<std::ptrdiff_t>(stream.below(others.size()));
    eligible.clear();
    std::ranges::copy_if(targets, std::back_inserter(eligible), [&](int rank) { return rank != *validator; });
    if (!eligible.empty()) {
      const int target = eligible[stream.below(eligible.size())];
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
