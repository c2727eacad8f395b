#include "catch.hpp"
#include "record/pictures/chart.hpp"

using namespace dat;

TEST_CASE("A long name is without its middle, and no letter is cut", "[pictures]") {
  CHECK(shortened("lr=0.1", 6) == "lr=0.1");
  CHECK(shortened("lr=0.1, 8 ranks", 10) == "lr=0...nks");
  CHECK(shortened("\u00e9\u00e8\u00ea\u00eb\u00e0\u00e2\u00e4\u00e7", 7) == "\u00e9\u00e8...\u00e4\u00e7");
}

TEST_CASE("Names under bars are turned where they would run into each other", "[pictures]") {
  const auto named = [](const std::vector<std::string>& names) {
    Panel panel;
    return std::pair(name_bars(panel, names), panel.x.marks);
  };
  CHECK(named({"a", "50 %"}) == std::pair(std::size_t{0}, std::string("('a' 0, '50 %%' 1)")));
  const auto [letters, marks] = named({"a run with a name of many letters", "another", "b"});
  CHECK(letters == 30);
  CHECK(marks == "rotate by -35 font ',11' ('a run with a n... many letters' 0, 'another' 1, 'b' 2)");
  // Of many ranks every second one.
  std::vector<std::string> ranks(17, "7");
  CHECK(named(ranks).second.starts_with("('7' 0, '' 1, '7' 2, "));
}
