#include "catch.hpp"
#include "single.hpp"
#include "train/attackers/cheating.hpp"

using namespace dat;

namespace {

[[nodiscard]] std::vector<Cheater> attackers(std::vector<int> who, std::vector<std::string> cheat) {
  TrainOptions options;
  options.attackers = std::move(who);
  options.cheat = std::move(cheat);
  return attackers_of(options);
}

}  // namespace

TEST_CASE("One name and step are for all attackers, or there is one for each; and in words", "[attackers]") {
  CHECK(attackers({}, {}).empty());
  CHECK(text_of(std::vector<Cheater>()).empty());
  CHECK(text_of(attackers({4, 1}, {"leave@7"})) == "ranks 4, 1: leave from step 8 on");
  CHECK(text_of(attackers({4, 1, 2}, {"sign_flip@100", "alie@0/10", "sign_flip@100"})) ==
        "ranks 4, 2: sign_flip from step 101 on; rank 1: alie, every 10 steps");
  CHECK(text_of(attackers({3}, {"delayed:1@1/2"})) == "rank 3: delayed:1 from step 2 on, every 2 steps");
}

TEST_CASE("Attackers cheat from their step on, every so many steps", "[attackers]") {
  const Cheater one = attackers({1}, {"leave@10/3"}).front();
  for (const int done : {10, 13, 16}) CHECK(one.cheats_after(done));
  for (const int done : {0, 7, 9, 11, 12, 14}) CHECK(!one.cheats_after(done));
}

TEST_CASE("A rank knows its cheat, when it looks and when it acts, and whose attack is weak", "[attackers]") {
  TrainOptions options;
  options.attackers = {0};
  for (const std::string name : {"weak", "mimic", "delayed:2", "leave"}) {
    options.cheat = {name + "@5/2"};
    Cheating cheating(test::single(), options, 10, 4);
    CHECK((cheating.own() == nullptr) == (name == "leave"));
    CHECK(cheating.weak() == (name == "weak" ? name : ""));
    for (const int step : {2, 3, 4, 5, 6, 7}) {
      cheating.begin(step);
      const bool acts = step == 5 || step == 7;
      CHECK(cheating.now() == (acts ? cheating.own() : nullptr));
      CHECK((cheating.looks() != nullptr) == (name == "mimic" ? step > 4 : name == "delayed:2" && step > 2));
      CHECK(cheating.anyone_sees_all() == (name == "mimic" && acts));
    }
  }
}

TEST_CASE("Whoever leaves has left from its step on", "[attackers]") {
  const std::vector<Cheater> all = attackers({1, 2, 3}, {"leave@3/10", "leave@5/10", "mimic@3"});
  CHECK(leaving(all, 2).empty());
  CHECK(text_of(leaving(all, 3)) == "rank 1: leave from step 4 on, every 10 steps");
  for (const int done : {5, 100}) CHECK(leaving(all, done).size() == 2);
}

TEST_CASE("Attackers are ranks that there are, and less than half of them", "[attackers]") {
  const auto refusal = [](const std::vector<int>& who, int ranks) {
    return error_of([&] { require_fitting(attackers(who, {"leave"}), ranks); });
  };
  CHECK(refusal({1, 2, 3, 4, 5, 6, 15}, 16) == "none");
  CHECK(refusal({}, 1) == "none");
  CHECK(refusal({1, 2}, 4) == "2: --attackers names 2 of 4 ranks; more than half must be honest");
  CHECK(refusal({5}, 5) == "2: --attackers names rank 5, and the ranks are 0 to 4");
  CHECK(refusal({1}, 1) == "2: --attackers names 1 of 1 rank; more than half must be honest");
}
