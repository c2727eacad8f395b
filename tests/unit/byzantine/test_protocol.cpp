#include "catch.hpp"
#include "party.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// Cheats, the rules by which they are found out, and whether all see them, or one rank.
const std::tuple<std::string, Rule, bool> kCheats[] = {
    {"equivocate", Rule::disputes, true},       {"wrong_digest", Rule::commitment, false},
    {"wrong_aggregate", Rule::aggregate, true}, {"false_norm", Rule::norm, false},
    {"false_product", Rule::product, false},    {"no_reveal", Rule::reveal, true},
    {"false_accuser", Rule::accusation, false}, {"idle_validator", Rule::validation, false},
    {"malformed", Rule::malformed, true},       {"silent", Rule::silence, false}};

}  // namespace

TEST_CASE("Nobody is banned where all are honest, and all ranks have the same weights", "[byzantine]") {
  const int ranks = GENERATE(2, 3, 4, 7);
  const int validators = GENERATE(0, 1, 2);
  const double tau = GENERATE(0.0, 10.0);
  if (validators >= ranks) return;
  const std::vector<PartyResult> all = hold_party(
      {.ranks = ranks, .faults = (ranks - validators - 1) / 2, .validators = validators, .steps = 6, .tau = tau});
  for (const PartyResult& one : all) {
    CHECK((one.bans.empty() && one.accusations.empty() && one.looks == 0 && one.steps == 6 && one.wrong == 0));
    std::int64_t bytes = 0;
    for (const int validator : one.validators) bytes += Protocol::bytes(ranks, 2, validator >= 0);
    CHECK((one.said == bytes && one.weights == all.front().weights));
  }
}

TEST_CASE("Every cheat is found out by its own rule, in its own step, and leaves no trace", "[byzantine]") {
  const auto& [cheat, rule, all_see] = kCheats[GENERATE(range(0, 10))];
  const bool whole = std::getenv("DAT_ALL_CASES") != nullptr, large = GENERATE(false, true);
  const std::uint64_t seeds = large ? (whole ? 20 : 1) : (whole ? 100 : 3);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(cheat, large, seed);
    const bool validates = cheat == "idle_validator";
    PartyOptions options{.ranks = 4, .faults = 1, .steps = validates ? 80 : 10, .seed = seed, .cheats = {{0, cheat}}};
    options.tau = seed % 2 == 0 ? 10 : 0;
    if (large) {
      options.ranks = 8;
      options.faults = 3;
      options.steps = validates ? 200 : 10;
      options.cheats = {{0, cheat}, {4, cheat}, {7, cheat}};
    }
    const std::vector<PartyResult> all = hold_party(options);  // rank 2 is honest
    REQUIRE(all[2].bans.size() == options.cheats.size());
    for (const Ban& ban : all[2].bans) {
      CHECK((options.cheats.contains(ban.rank) && std::string(name_of(ban.rule)) == name_of(rule)));
      CHECK((ban.step >= options.from && (ban.by == -1) == all_see));
      options.leave[ban.rank] = ban.step;
      // A validator has nothing to say of a gradient; all others are found out in the first step that they cheat in.
      const auto& idle = all[2].validators;
      for (std::int64_t step = options.from; step < ban.step && !validates; ++step)
        CHECK(idle[static_cast<std::size_t>(step)] == ban.rank);
    }
    options.cheats.clear();
    const std::vector<PartyResult> left = hold_party(options);
    CHECK(left[2].bans.empty());
    for (int rank = 0; rank < options.ranks; ++rank)
      if (!options.leave.contains(rank)) CHECK(all[static_cast<std::size_t>(rank)].weights == left[2].weights);
  }
}

TEST_CASE("Cheats with gradients are found out by who does the work once more", "[byzantine]") {
  const int validators = GENERATE(1, 2);
  const PartyOptions options{.ranks = 7, .faults = 2, .validators = validators, .steps = 150, .poisoners = {0, 5}};
  const std::vector<PartyResult> all = hold_party(options);
  REQUIRE(all[1].bans.size() == 2);
  for (const Ban& ban : all[1].bans) CHECK(((ban.rank == 0 || ban.rank == 5) && ban.rule == Rule::gradient));
  for (const int rank : {2, 3, 4, 6}) CHECK(all[static_cast<std::size_t>(rank)].weights == all[1].weights);
  // So is who commits to, or finds, something else where no other rank gets it: in its own part, the first or the last.
  for (const int liar : {0, 2}) {
    PartyOptions own{.ranks = 3, .faults = 0, .steps = 20};
    own.distortions[liar] = [=](int number, std::byte* data, std::size_t) {
      if (number % 6 == 0) data[Letter::kHead + sizeof(Sha256Digest) * static_cast<std::size_t>(liar)] ^= std::byte{1};
    };
    const std::vector<Ban> bans = hold_party(own)[1].bans;
    CHECK((bans.size() == 1 && bans[0].rank == liar));
  }
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
  CHECK((all[0].bans.empty() && all[0].steps == 5));
  for (const PartyResult& one : all) CHECK(one.looks == 5 * 5);  // at every part, in every step
  options.cheats = {{3, "wrong_aggregate"}};
  REQUIRE(hold_party(options)[0].bans.size() == 1);
}

TEST_CASE("Ranks without a part, and parts of one element, are cut off and looked at like others", "[byzantine]") {
  for (const PartyResult& one : hold_party({.ranks = 5, .faults = 1, .elements = 3, .steps = 5, .iterations = 1}))
    CHECK((one.bans.empty() && one.accusations.empty() && one.steps == 5));
  CHECK((PartLayout{10, 3}.longest() == PartLayout{10, 3}.size(2) && PartLayout{9, 3}.longest() == 3));
  const auto backend = make_backend({.device = "cpu", .threads = 1, .math = "f32"});
  const auto taken = [&] {
    std::int64_t bytes = 0;
    for (const auto& one : backend->allocations()) bytes += static_cast<std::int64_t>(one.bytes);
    return bytes;
  };
  const std::int64_t before = taken();
  const RunSums sums(*backend, 5 * kChunk, 3);
  // Of a chunk itself and its three sums, of a run three sums; and these on the host.
  CHECK((RunSums::memory(5 * kChunk, 3) == 8 * (16 + 24) + 3 * 24 + 4 * 4 && taken() - before == 408 + 72));
  // Of nothing, too, everybody makes what the rank that has it has made.
  const auto aggregator = aggregators().at("centered_clip")(*backend, Parameters{}, {.ranks = 2, .faults = 0});
  float message = 1, everyone = 1, place = 1, result = 1;
  PartWork work(*backend, 2, 0, 1, {});
  work.use(*aggregator);
  work.weigh(std::vector<double>{1, 1});
  work.begin(0, 1, &message);
  work.exchanged(&everyone, &place);
  work.gathered(&result);
  bool unfinished = true;
  CHECK((work.aggregated(0, {}, unfinished) && !unfinished));
}

TEST_CASE("Parts are looked at where most gradients are more than two tau away, or rounding is beyond a part of tau",
          "[byzantine]") {
  // Of 100 uniform numbers each, gradients are some 1.5 from their mean, or 5e-6; the result is some 10 long, and its
  // rounding 6e-7.
  for (const auto& [tau, spread, wide, looks] :
       {std::tuple{0.6, 0.3, 0, 25}, {0.9, 0.3, 0, 0}, {1.2, 0.3, 2, 0}, {2e-5, 1e-6, 0, 25}, {2e-3, 1e-6, 0, 0}}) {
    const auto all = hold_party({.ranks = 5, .faults = 1, .steps = 5, .tau = tau, .spread = spread, .wide = wide});
    INFO("tau " << tau << ", spread " << spread << ", of " << wide << " ranks three times that");
    for (const PartyResult& one : all) CHECK(one.looks == looks);
    CHECK(all[0].bans.empty());
  }
  CHECK(hold_party({.ranks = 5, .validators = 0, .steps = 1, .tau = 1.2, .wide = 3})[0].looks == 5);  // three of five
}

TEST_CASE("Who says of an iteration that is at rest that it was cut off is looked at, and found out", "[byzantine]") {
  PartyOptions options{.ranks = 4, .faults = 1, .steps = 4};
  options.distortions[3] = [](int number, std::byte* data, std::size_t) {
    if (number % 6 == 4) data[Letter::kHead] ^= std::byte{1};  // after commitments, salts, complaints, shares: claims
  };
  CHECK(hold_party(options)[0].bans == std::vector<Ban>{{.rank = 3, .rule = Rule::aggregate}});
}

TEST_CASE("Who passes over a false claim about its part leaves with who has made it", "[byzantine]") {
  PartyOptions options{.ranks = 5, .faults = 2, .steps = 3, .iterations = 1};  // all look at every part
  options.distortions[3] = [](int number, std::byte* data, std::size_t) {
    if (number == 4) data[Letter::kHead + 8 + 4 * sizeof(Claim) + 8] ^= std::byte{1};  // its norm in part 4
  };
  options.distortions[4] = [](int number, std::byte* data, std::size_t) {
    if (number == 5) data[Letter::kHead] = std::byte{0};  // after commitments, salts, complaints, shares, claims
  };
  const std::vector<PartyResult> all = hold_party(options);
  CHECK(all[0].bans == std::vector<Ban>{{.rank = 3, .rule = Rule::norm}, {.rank = 4, .rule = Rule::withheld}});
  CHECK(all[0].steps == 3);
}

TEST_CASE("A dispute is one of either rank, and ends when one of them leaves", "[byzantine]") {
  Disputes disputes;
  disputes.note(1, 63);
  disputes.note(2, 1);
  CHECK((disputes.count(1) == 2 && disputes.count(2) == 1 && disputes.count(63) == 1));
  CHECK(disputes.count(1, Disputes::bit(0) | Disputes::bit(2)) == 3);
  disputes.forget(63);
  CHECK((disputes.count(1) == 1 && disputes.count(2) == 1 && disputes.count(63) == 0));
  disputes.forget(1);
  CHECK(disputes.all() == Disputes().all());
}

TEST_CASE("Of a group that has got smaller, what concerns those who have left is dropped", "[byzantine]") {
  const auto backend = make_backend({.device = "cpu", .threads = 1, .math = "f32"});
  PartWork work(*backend, 2, 0, 1, {});
  Hall hall(std::vector{0, 3});
  std::int64_t said = 0;
  HallAssembly assembly(hall, 0, {}, said);
  Protocol protocol(assembly, work, {}, Secret(1, 0, ""), 0);
  ProtocolState state;
  for (const auto& [validator, target] : {std::pair(0, 3), {3, 0}, {0, 1}, {1, 3}}) {
    PendingCheck& check = state.pending.checks.emplace_back();
    std::tie(check.validator, check.target) = std::tie(validator, target);
    state.disputes.note(validator, target);
  }
  protocol.restore(state);
  const Disputes& left = protocol.state().disputes;
  CHECK(
      (protocol.state().pending.checks.size() == 2 && left.count(0) == 1 && left.count(3) == 1 && left.count(1) == 0));
}

TEST_CASE("Who is disputed by no more ranks than may lie keeps its place", "[byzantine]") {
  // Rank 3 says that it has got something else from rank 1 than rank 1 has committed to, which nobody can know; and
  // from itself, which nobody asks.
  PartyOptions options{.ranks = 4, .faults = 1, .steps = 4};
  options.distortions[3] = [](int number, std::byte* data, std::size_t) {
    if (number % 6 == 2) data[Letter::kHead] |= std::byte{2 | 8};  // commitments, salts, complaints
  };
  const std::vector<PartyResult> all = hold_party(options);
  CHECK((all[0].bans.empty() && all[0].accusations.size() >= 1));
  // Once in each step but those in which rank 1 has brought nothing.
  CHECK(std::ssize(all[0].accusations) == 4 - std::ranges::count(all[0].validators, 1));
  for (const Accusation& one : all[0].accusations)
    CHECK((one.by == 3 && one.rank == 1 && one.rule == Rule::commitment && !one.upheld));
  // Rank 0 or 3 about more, at once or in steps after the first, the last time about rank 0.
  options.steps = 10;
  for (const auto& [who, first, then, accusations] : {std::tuple(0, 12, 12, 1), {3, 3, 3, 1}, {3, 2, 1, 2}}) {
    options.distortions.clear();
    options.distortions[who] = [first = first, then = then](int number, std::byte* data, std::size_t) {
      if (number % 6 == 2) data[Letter::kHead] |= static_cast<std::byte>(number == 2 ? first : then);
    };
    const PartyResult one = hold_party(options)[2];
    REQUIRE(one.bans.size() == 1);
    CHECK((one.bans[0].rank == who && one.bans[0].by == -1 && one.bans[0].rule == Rule::disputes));
    CHECK(std::ssize(one.accusations) == accusations);  // nobody had to look at what was too much
    if (first != then) continue;
    // A step ends with the ban: nothing is said of shares, claims and accusations.
    std::int64_t bytes = Protocol::bytes(4, 2, false) - (8 + 3 * 32 + 2 * 8) - (8 + 8 + 4 * 16) - (8 + 8);
    for (const int validator : one.validators) bytes += Protocol::bytes(3, 2, validator >= 0);
    CHECK(one.said == bytes);
  }
}

TEST_CASE("Disputes with who has left do not count", "[byzantine]") {
  PartyOptions options{.ranks = 6, .faults = 2, .steps = 5, .deceives = {{1, 3}}, .leave = {{1, 2}}};
  // Rank 2 complains about the third of the group: itself, and rank 3 once rank 1 has left.
  options.distortions[2] = [](int number, std::byte* data, std::size_t) {
    if (number % 6 == 2) data[Letter::kHead] |= std::byte{4};
  };
  const std::vector<PartyResult> all = hold_party(options);
  CHECK((all[0].bans.empty() && all[0].steps == 5));
  std::set<std::pair<int, int>> disputes;
  for (const Accusation& one : all[0].accusations) disputes.insert({one.by, one.rank});
  CHECK(disputes == std::set<std::pair<int, int>>{{2, 3}, {3, 1}});
}

TEST_CASE("A part that was disputed and shown is the one that counts", "[byzantine]") {
  PartyOptions options{.ranks = 4, .faults = 1, .steps = 5};
  const std::vector<PartyResult> honest = hold_party(options);
  options.deceives = {{2, 0}, {1, 3}};
  const std::vector<PartyResult> all = hold_party(options);
  CHECK((all[0].bans.empty() && all[0].accusations.size() > 1));  // of the two, nobody can know who lies
  for (const Accusation& one : all[0].accusations) CHECK_FALSE(one.upheld);
  for (const PartyResult& one : all) CHECK(one.weights == honest[0].weights);
}

TEST_CASE("A part of the result that is wrong by less than gradients differ is found out by the sum of claims",
          "[byzantine]") {
  const float shift = GENERATE(0.1F, 1e-3F);
  const std::vector<PartyResult> all = hold_party({.ranks = 4, .faults = 1, .steps = 4, .shifts = {{2, shift}}});
  CHECK(all[0].bans == std::vector<Ban>{{.rank = 2, .rule = Rule::aggregate}});
}

TEST_CASE("Who shows another share of the randomness, numbers or part than it has committed to, or none, is found out",
          "[byzantine]") {
  // After commitments, salts and complaints: shares; after claims and accusations, part 0 of 24 numbers.
  static constexpr std::size_t kLast = ~std::size_t{0}, kHead = Letter::kHead;
  const auto [shown, at, bits, rule] = GENERATE(
      std::tuple(3, kHead, 1, Rule::reveal), std::tuple(3, kLast, 1, Rule::commitment),
      std::tuple(6, kHead + sizeof(Sha256Digest), 1, Rule::commitment),
      std::tuple(6, std::size_t{0}, 32 + 4 * 24, Rule::silence), std::tuple(6, std::size_t{0}, 1, Rule::malformed));
  PartyOptions options{.ranks = 4, .faults = 1, .elements = 96, .steps = 4};
  const bool claims = GENERATE(false, true);  // something false about part 0; else all look at every part
  if (shown == 6 && !claims) options.iterations = 1;
  options.distortions[3] = [=](int number, std::byte* data, std::size_t bytes) {
    if (number == shown) data[std::min(at, bytes - 1)] ^= static_cast<std::byte>(bits);
    if (number == 4 && claims) data[kHead + 8 + 8] ^= std::byte{1};  // its norm
  };
  const std::vector<PartyResult> all = hold_party(options);
  REQUIRE(all[0].accusations.size() == 1);
  const Ban ban{.step = all[0].accusations[0].step, .rank = 3, .by = shown == 6 ? 0 : -1, .rule = rule};
  CHECK(all[0].bans == std::vector{ban});
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
    CHECK((all[0].weights == all[1].weights && all[0].steps == 5));
    found += all[0].bans.empty() ? 0 : 1;
  }
  CHECK(found > runs / 2);
}
