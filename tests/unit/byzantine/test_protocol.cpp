#include <cstdlib>
#include <random>

#include "catch.hpp"
#include "party.hpp"

using namespace dat;
using namespace dat::test;

namespace {

const char* const kCheats[] = {"equivocate", "wrong_digest",  "wrong_aggregate", "false_norm", "false_product",
                               "no_reveal",  "false_accuser", "idle_validator",  "malformed",  "silent"};

/// The rule by which a cheat is found out.
[[nodiscard]] Rule rule_of(const std::string& cheat) {
  if (cheat == "equivocate") return Rule::disputes;
  if (cheat == "wrong_digest") return Rule::commitment;
  if (cheat == "wrong_aggregate") return Rule::aggregate;
  if (cheat == "false_norm") return Rule::norm;
  if (cheat == "false_product") return Rule::product;
  if (cheat == "no_reveal") return Rule::reveal;
  if (cheat == "false_accuser") return Rule::accusation;
  if (cheat == "idle_validator") return Rule::validation;
  if (cheat == "malformed") return Rule::malformed;
  return Rule::silence;
}

}  // namespace

TEST_CASE("Nobody is banned where all are honest, and all ranks have the same weights", "[byzantine]") {
  const int ranks = GENERATE(2, 3, 4, 7);
  const int validators = GENERATE(0, 1, 2);
  if (validators >= ranks) return;
  const std::vector<PartyResult> all =
      hold_party({.ranks = ranks, .faults = (ranks - validators - 1) / 2, .validators = validators, .steps = 6});
  for (const PartyResult& one : all) {
    CHECK(one.bans.empty());
    CHECK(one.accusations.empty());
    CHECK(one.steps == 6);
    CHECK(one.weights == all.front().weights);
  }
}

TEST_CASE("Every cheat is found out by its own rule, in its own step, and leaves no trace", "[byzantine]") {
  const std::string cheat = kCheats[GENERATE(range(0, 10))];
  const std::uint64_t seed = GENERATE(1, 2, 3);
  CAPTURE(cheat, seed);
  const bool validates = cheat == "idle_validator";
  PartyOptions options{.ranks = 4, .faults = 1, .steps = validates ? 60 : 6, .seed = seed, .cheats = {{2, cheat}}};
  const std::vector<PartyResult> all = hold_party(options);
  REQUIRE(all[0].bans.size() == 1);
  const Ban& ban = all[0].bans.front();
  CHECK(ban.rank == 2);
  CHECK(std::string(name_of(ban.rule)) == name_of(rule_of(cheat)));
  CHECK(ban.step >= options.from);
  if (!validates) CHECK(ban.step <= options.from + 2);  // a validator has nothing to say of a gradient
  options.cheats.clear();
  options.leave = {{2, ban.step}};
  const std::vector<PartyResult> left = hold_party(options);
  CHECK(left[0].bans.empty());
  for (const int rank : {0, 1, 3}) CHECK(all[static_cast<std::size_t>(rank)].weights == left[0].weights);
}

TEST_CASE("Cheats with gradients are found out by who does the work once more", "[byzantine]") {
  const int validators = GENERATE(1, 2);
  const PartyOptions options{.ranks = 7, .faults = 2, .validators = validators, .steps = 150, .poisoners = {1, 5}};
  const std::vector<PartyResult> all = hold_party(options);
  REQUIRE(all[0].bans.size() == 2);
  for (const Ban& ban : all[0].bans) {
    CHECK((ban.rank == 1 || ban.rank == 5));
    CHECK(ban.rule == Rule::gradient);
  }
  for (const int rank : {2, 3, 4, 6}) CHECK(all[static_cast<std::size_t>(rank)].weights == all[0].weights);
}

TEST_CASE("An iteration that is cut off, or gradients that are far apart, are looked at and cost nobody his place",
          "[byzantine]") {
  PartyOptions options{.ranks = 5, .faults = 1, .steps = 5};
  const bool cut = GENERATE(true, false);
  if (cut)
    options.iterations = 1;
  else
    options.tau = 0.01;
  const std::vector<PartyResult> all = hold_party(options);
  CHECK(all[0].bans.empty());
  CHECK(all[0].steps == 5);
  options.cheats = {{3, "wrong_aggregate"}};
  REQUIRE(hold_party(options)[0].bans.size() == 1);
}

TEST_CASE("Who is disputed by no more ranks than may lie keeps its place", "[byzantine]") {
  // Rank 3 says that it has got something else from rank 1 than rank 1 has committed to, which nobody can know.
  PartyOptions options{.ranks = 4, .faults = 1, .steps = 4};
  options.distortions[3] = [](int number, std::byte* data, std::size_t) {
    if (number % 6 == 2) data[Letter::kHead] |= std::byte{2};  // commitments, salts, complaints
  };
  const std::vector<PartyResult> all = hold_party(options);
  CHECK(all[0].bans.empty());
  CHECK(all[0].accusations.size() >= 1);
  for (const Accusation& one : all[0].accusations) {
    CHECK(one.by == 3);
    CHECK(one.rank == 1);
    CHECK_FALSE(one.upheld);
  }
  options.distortions[3] = [](int number, std::byte* data, std::size_t) {
    if (number % 6 == 2) data[Letter::kHead] |= std::byte{7};
  };
  const std::vector<PartyResult> many = hold_party(options);
  REQUIRE(many[0].bans.size() == 1);
  CHECK(many[0].bans[0].rank == 3);
  CHECK(many[0].bans[0].rule == Rule::disputes);
}

TEST_CASE("Whatever is done to one rank's messages, nobody else is banned", "[byzantine]") {
  const int runs = std::getenv("DAT_ALL_CASES") != nullptr ? 10000 : 60;
  std::mt19937 words(5);
  int found = 0;
  for (int run = 0; run < runs; ++run) {
    PartyOptions options{.ranks = 4, .faults = 1, .elements = 40, .steps = 5, .seed = static_cast<std::uint64_t>(run)};
    const auto first = static_cast<unsigned>(words() % 20), count = static_cast<unsigned>(1 + words() % 8);
    std::vector<std::uint32_t> noise(2 * count);
    for (std::uint32_t& word : noise) word = static_cast<std::uint32_t>(words());
    const bool head = words() % 4 == 0;
    options.distortions[2] = [=](int number, std::byte* data, std::size_t bytes) {
      if (static_cast<unsigned>(number) != first) return;
      for (std::size_t k = 0; k < noise.size(); k += 2)
        data[head ? noise[k] % 8 : noise[k] % bytes] ^= static_cast<std::byte>(1U << (noise[k + 1] % 8));
    };
    const std::vector<PartyResult> all = hold_party(options);
    for (const PartyResult& one : all)
      for (const Ban& ban : one.bans) CHECK(ban.rank == 2);
    CHECK(all[0].weights == all[1].weights);
    CHECK(all[0].steps == 5);
    found += all[0].bans.empty() ? 0 : 1;
  }
  CHECK(found > runs / 2);
}
