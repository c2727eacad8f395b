#include "catch.hpp"
#include "communicate/handshake.hpp"
#include "world.hpp"

using namespace dat;
using dat::test::world;

TEST_CASE("Ranks with the same facts differ in nothing", "[handshake]") {
  CHECK(differences(world(), {}, "here").empty());
  CHECK(differences(world(), {{"lr", "0.1"}, {"empty", ""}, {"lines", "a\nb\tc"}}, "here").empty());
}

TEST_CASE("A difference is told on rank 0, with the values, the ranks and where they are", "[handshake]") {
  const int rank = world().rank(), size = world().size();
  const std::string host = "node" + std::to_string(rank / 2);
  const std::string odd = differences(world(), {{"same", "x"}, {"lr", rank == size - 1 ? "0.2" : "0.1"}}, host);
  if (size == 1 || !world().root()) {
    CHECK(odd.empty());
  } else {
    const std::string others = size == 2   ? "rank 0 (node0)"
                               : size == 3 ? "ranks 0, 1 (node0)"
                                           : "ranks 0 to " + std::to_string(size - 2);
    CHECK(odd.starts_with("lr is 0.1 on " + others));
    CHECK(odd.ends_with(", 0.2 on rank " + std::to_string(size - 1) + " (node" + std::to_string((size - 1) / 2) + ")"));
  }
}

TEST_CASE("A fact that only some ranks have, and one of thousands of letters, differ", "[handshake]") {
  const bool last = world().rank() == world().size() - 1;
  Facts facts = {{"text", std::string(5000, 'a') + (last ? "b" : "a")}};
  if (last) facts.emplace_back("new", "1");
  const std::string text = differences(world(), facts, "here");
  const bool told = world().root() && world().size() > 1;
  CHECK(text.empty() == !told);
  CHECK(contains(text, "new is unknown on rank") == told);
  CHECK(contains(text, "text is aaa") == told);
}

TEST_CASE("Of many differences the first are told", "[handshake]") {
  Facts facts;
  for (int k = 0; k < 100; ++k) facts.emplace_back("fact " + std::to_string(k), std::to_string(world().rank()));
  const std::string text = differences(world(), facts, "here");
  if (world().size() == 1 || !world().root()) return;
  CHECK(contains(text, "fact 4 is 0 on rank 0 (here), 1 on rank 1 (here)"));
  CHECK(!contains(text, "fact 5"));
  CHECK(text.ends_with("; ..."));
}
