#include "catch.hpp"
#include "train/protocol/ban_protocol.hpp"

using namespace dat;

namespace {

/// Notes what it is asked for.
struct Liar final : Cheat, Mischief {
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic topic, Letter&, bool validates) override { asked = {topic == Topic::show ? 'm' : '?', validates}; }
  void parts(std::span<float> message) override { message[0] = 1; }
  void aggregate(std::span<float> part) override { part[0] = 2; }
  [[nodiscard]] const Contribution* story(const PendingCheck&) override { return &own; }
  std::pair<char, bool> asked{};
  Contribution own;
};

}  // namespace

TEST_CASE("Validators leave so many ranks to bring gradients that liars are less than half of them", "[byzantine]") {
  TrainOptions options;
  options.aggregator = "centered_clip";
  options.faults = 1;
  const auto refusal = [&](bool byzantine, int validators, int ranks) {
    options.byzantine = byzantine;
    options.validators = validators;
    return error_of([&] { require_validators(options, ranks); });
  };
  for (const auto& [validators, ranks] : {std::pair(1, 4), std::pair(2, 5), std::pair(5, 1)})
    CHECK(refusal(true, validators, ranks) == "none");
  CHECK(refusal(false, 2, 4) == "none");
  CHECK(refusal(true, 3, 5)
            .starts_with("2: with --validators 3, 2 of 5 ranks bring a gradient to a step, and 1 of them "));
  CHECK(refusal(true, 2, 4).ends_with("choose fewer validators or --faults 0"));
}

TEST_CASE("Who cheats lies as its cheat does, and tells of a friend what the friend has committed to", "[byzantine]") {
  Collusion collusion;
  Liar liar;
  const std::unique_ptr<Cheat> outside = cheats().at("sign_flip")({});  // does nothing to the protocol
  Letter letter(8);
  PendingCheck check;
  check.target = 3;
  check.numbers = {4, 5};
  check.claims = {{6, 7}};
  for (Cheat* const cheat : {static_cast<Cheat*>(nullptr), outside.get(), static_cast<Cheat*>(&liar)}) {
    const bool lies = cheat == &liar;
    std::vector<float> parts(2), part(2);
    collusion.act(cheat);
    collusion.message(Topic::show, letter, true);
    collusion.parts(parts);
    collusion.aggregate(part);
    CHECK(liar.asked == (lies ? std::pair('m', true) : std::pair('\0', false)));
    CHECK((parts[0] == (lies ? 1.0F : 0.0F) && part[0] == (lies ? 2.0F : 0.0F)));
    CHECK(collusion.story(check) == (lies ? &liar.own : nullptr));
    const std::vector<Sha256Digest> roots{{1, 2}, {3}};
    collusion.hear(2, {});
    collusion.hear(3, roots);
    const Contribution* const told = collusion.story(check);
    REQUIRE((told != nullptr && told->claims.size() == 1));
    CHECK((told->roots == roots && told->numbers == check.numbers && told->claims[0].norm == 7));
    collusion.forget();
    CHECK(collusion.story(check) == (lies ? &liar.own : nullptr));
  }
}
