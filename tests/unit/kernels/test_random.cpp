#include "catch.hpp"
#include "dat/random.hpp"

using namespace dat;

namespace {

std::array<std::uint32_t, 4> words(const Philox4& p) { return {p.v[0], p.v[1], p.v[2], p.v[3]}; }

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of the Random123 distribution", "[random]") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(words(philox4x32({{0, 0, 0, 0}}, 0, 0)) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t kOnes = 0xffffffff;
  CHECK(words(philox4x32({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes)) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  constexpr Words kOfPi{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  CHECK(words(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0)) == kOfPi);
  CHECK(words(random_words(0x299f31d0a4093822, Purpose::augmentation, 0x13198a2e, 0x0070734485a308d3, 0x243f6a88)) ==
        kOfPi);
}

TEST_CASE("Uniform numbers lie in [0, 1) and spread evenly", "[random]") {
  CHECK(uniform(0) == 0.0F);
  CHECK(uniform(0xffffffff) == 1.0F - 0x1p-24F);
  CHECK(uniform(0x80000000) == 0.5F);
  constexpr int kDraws = 40000;
  double total = 0, square = 0;
  for (std::uint32_t k = 0; k < kDraws / 4; ++k)
    for (const std::uint32_t word : words(random_words(7, Purpose::shuffle, 3, 5, k))) {
      const double u = uniform(word);
      total += u;
      square += u * u;
    }
  // Mean 1/2 with variance 1/12, mean square 1/3 with variance 4/45: five standard deviations.
  CHECK(std::abs(total / kDraws - 1.0 / 2) < 5 * std::sqrt(1.0 / 12 / kDraws));
  CHECK(std::abs(square / kDraws - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / kDraws));
}

TEST_CASE("Random words depend on every argument and on nothing else", "[random]") {
  const auto base = [] { return words(random_words(1, Purpose::shuffle, 2, 3, 4)); };
  CHECK(base() == base());
  std::set<std::array<std::uint32_t, 4>> seen{base()};
  std::size_t count = 1;
  const auto fresh = [&](const Philox4& p) {
    seen.insert(words(p));
    return seen.size() == ++count;
  };
  CHECK(fresh(random_words(1ULL << 40, Purpose::shuffle, 2, 3, 4)));
  for (std::uint32_t k = 0; k < 8; ++k) {
    CHECK(fresh(random_words(100 + k, Purpose::shuffle, 2, 3, 4)));
    CHECK(fresh(random_words(1, Purpose::shuffle, 100 + k, 3, 4)));
    CHECK(fresh(random_words(1, Purpose::shuffle, 2, 100 + k, 4)));
    CHECK(fresh(random_words(1, Purpose::shuffle, 2, 3 + (std::uint64_t{1} << (32 + k)), 4)));
    CHECK(fresh(random_words(1, Purpose::shuffle, 2, 3, 100 + k)));
  }
}

TEST_CASE("Numbers with different purposes are independent", "[random]") {
  const Purpose purposes[] = {Purpose::initial_weights, Purpose::shuffle,          Purpose::augmentation,
                              Purpose::attack_start,    Purpose::evaluation_start, Purpose::layer_draw,
                              Purpose::synthetic_data};
  constexpr int kDraws = 4096;
  std::vector<std::vector<double>> streams;
  for (const Purpose purpose : purposes) {
    std::vector<double>& stream = streams.emplace_back();
    for (std::uint32_t k = 0; k < kDraws; ++k) stream.push_back(uniform(random_words(11, purpose, 0, 0, k).v[0]) - 0.5);
  }
  // The correlation of independent streams has standard deviation 1/sqrt(draws).
  for (std::size_t a = 0; a < streams.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      double product = 0;
      for (int k = 0; k < kDraws; ++k)
        product += streams[a][static_cast<std::size_t>(k)] * streams[b][static_cast<std::size_t>(k)];
      CHECK(std::abs(product / kDraws * 12) < 5 / std::sqrt(kDraws));
    }
}
