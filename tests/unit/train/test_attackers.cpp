#include "catch.hpp"
#include "dat/cheat.hpp"
#include "train/attackers/attackers.hpp"

using namespace dat;

namespace {

TrainOptions with(std::vector<int> who, std::vector<std::string> cheat) {
  TrainOptions options;
  options.attackers = std::move(who);
  options.cheat = std::move(cheat);
  return options;
}

}  // namespace

TEST_CASE("One name and step are for all attackers, or there is one for each", "[attackers]") {
  CHECK(attackers_of(TrainOptions()).empty());
  const std::vector<Cheater> all = attackers_of(with({4, 1}, {"leave@7"}));
  REQUIRE(all.size() == 2);
  CHECK(all[0].rank == 4);
  CHECK(all[1].rank == 1);
  CHECK((all[0].cheat == "leave" && all[1].cheat == "leave"));
  CHECK((all[0].from == 7 && all[1].from == 7));
  const std::vector<Cheater> each = attackers_of(with({1, 2}, {"leave@3", "leave@5"}));
  CHECK((each[0].from == 3 && each[1].from == 5));
  CHECK(attackers_of(with({1}, {"leave"}))[0].from == 0);
}

TEST_CASE("Attackers cheat from their step on, every so many steps", "[attackers]") {
  const Cheater one{.rank = 1, .cheat = "leave", .from = 10, .every = 3};
  for (const int done : {10, 13, 16}) CHECK(one.cheats_after(done));
  for (const int done : {0, 7, 9, 11, 12, 14}) CHECK(!one.cheats_after(done));
}

TEST_CASE("Whoever leaves has left from its step on", "[attackers]") {
  const std::vector<Cheater> all = attackers_of(with({1, 2}, {"leave@3/10", "leave@5/10"}));
  CHECK(leaving(all, 2).empty());
  CHECK(leaving(all, 3).size() == 1);
  CHECK(leaving(all, 4)[0].rank == 1);
  CHECK(leaving(all, 5).size() == 2);
  CHECK(leaving(all, 100).size() == 2);
  CHECK(cheats().at("leave")({})->leaves());
}

TEST_CASE("Attackers are ranks that there are, and less than half of them", "[attackers]") {
  const auto refusal = [](std::vector<int> who, int ranks) {
    const std::vector<Cheater> all = attackers_of(with(std::move(who), {"leave"}));
    return error_of([&] { require_fitting(all, ranks); });
  };
  CHECK(refusal({1, 2, 3, 4, 5, 6, 15}, 16) == "none");
  CHECK(refusal({}, 1) == "none");
  CHECK(refusal({1, 2}, 4) == "2: --attackers names 2 of 4 ranks; more than half must be honest");
  CHECK(refusal({5}, 5) == "2: --attackers names rank 5, and the ranks are 0 to 4");
  CHECK(refusal({1}, 1) == "2: --attackers names 1 of 1 rank; more than half must be honest");
}
