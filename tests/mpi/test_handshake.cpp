#include "catch.hpp"
#include "communicate/handshake.hpp"
#include "communicate/hang/flight_recorder.hpp"
#include "world.hpp"

using namespace dat;
using dat::test::world;

TEST_CASE("Ranks with the same facts differ in nothing", "[handshake]") {
  CHECK(differences(world(), {}, "here").empty());
  CHECK(differences(world(), {{"lr", "0.1"}, {"empty", ""}, {"lines", "a\nb\tc"}}, "here").empty());
  CHECK((world().size() == 1 || FlightRecorder::of_process().kept().back().call == Call::agree));  // no text is sent
}

TEST_CASE("A difference is told on rank 0, with the values, the ranks and where they are, of which five are named",
          "[handshake]") {
  const int rank = world().rank(), size = world().size();
  const auto place = [](int of) { return "node" + std::to_string(of); };
  const std::string text = differences(
      world(), {{"same", "x"}, {"own", "a\nb\t" + std::to_string(rank)}, {"lr", rank == size - 1 ? "0.1" : "0.2"}},
      place(rank));
  std::string own, places;
  for (int k = 0; k < std::min(size, 5); ++k)
    own += (k > 0 ? ", a b " : "a b ") + std::to_string(k) + " on rank " + std::to_string(k) + " (" + place(k) + ")";
  for (int k = 0; k < std::min(size - 1, 5); ++k) places += (k > 0 ? ", " : "") + place(k);
  const std::string others = size == 2 ? "rank 0" : size == 3 ? "ranks 0, 1" : "ranks 0 to " + std::to_string(size - 2);
  const std::string told = "own is " + own + (size > 5 ? ", ..." : "") + "; lr is 0.2 on " + others + " (" + places +
                           (size > 6 ? ", ..." : "") + "), 0.1 on rank " + std::to_string(size - 1) + " (" +
                           place(size - 1) + ")";
  CHECK(text == (size > 1 && world().root() ? told : ""));
}

TEST_CASE("A fact that only some ranks have, and one of thousands of letters, differ", "[handshake]") {
  const bool last = world().rank() == world().size() - 1;
  Facts facts = {{"text", std::string(5000, 'a') + (last ? "b" : "a")}};
  if (last) facts.emplace_back("new", "1");
  const std::string text = differences(world(), facts, "here");
  const bool told = world().root() && world().size() > 1;
  CHECK(text.empty() == !told);
  CHECK((contains(text, "new is unknown on rank") == told && contains(text, "text is aaa") == told));
}

TEST_CASE("Of many differences the first are told", "[handshake]") {
  Facts facts;
  for (int k = 0; k < 100; ++k) facts.emplace_back("fact " + std::to_string(k), std::to_string(world().rank()));
  const std::string text = differences(world(), facts, "here");
  if (world().size() == 1 || !world().root()) return;
  CHECK((contains(text, "fact 4 is 0 on rank 0 (here), 1 on rank 1 (here)") && !contains(text, "fact 5")));
  CHECK(text.ends_with("; ..."));
}
