#include "catch.hpp"
#include "train/message/step_message.hpp"

using namespace dat;

namespace {

/// What each rank says: that it wishes to stop, that it has seen a number that is not finite.
[[nodiscard]] Vote counted(const std::vector<std::pair<bool, bool>>& ranks, int faults) {
  std::vector<double> said;
  for (const auto& [wish, bad] : ranks) {
    Vote one;
    one.wish = wish;
    one.bad = bad;
    one.write(&said.emplace_back(), 0);
    said.push_back(1e300);  // another part's
  }
  Vote vote;
  CHECK(vote.read_each({.first = said.data(), .stride = 2, .ranks = static_cast<int>(ranks.size()), .faults = faults}));
  return vote;
}

}  // namespace

TEST_CASE("One false rank's vote ends no run and skips no step; rank 0's wish, or more wishes than faults, do",
          "[message]") {
  const std::pair<bool, bool> quiet{false, false}, wish{true, false}, bad{false, true}, both{true, true};
  CHECK(!counted({quiet, quiet, quiet}, 1).stop_agreed());
  CHECK(!counted({quiet, wish, quiet}, 1).stop_agreed());
  CHECK(counted({wish, quiet, quiet}, 1).stop_agreed());
  CHECK(counted({quiet, wish, wish}, 1).stop_agreed());
  CHECK(counted({quiet, wish, quiet}, 0).stop_agreed());
  CHECK(!counted({quiet, bad, quiet}, 1).bad_agreed());
  CHECK(!counted({bad, quiet, quiet}, 1).bad_agreed());  // rank 0 has no more weight there
  CHECK(counted({bad, bad, quiet}, 1).bad_agreed());
  CHECK(counted({quiet, bad, quiet}, 0).bad_agreed());
  CHECK((!counted({quiet, both, bad}, 2).bad_agreed() && !counted({quiet, both, bad}, 1).stop_agreed()));
  CHECK(counted({quiet, both, bad}, 1).bad_agreed());
}

TEST_CASE("A vote that is no number counts for nothing", "[message]") {
  for (const double nonsense : {std::nan(""), -1.0, -1e300, HUGE_VAL}) {  // infinity: one vote of each kind
    std::vector<double> said = {0, nonsense, 0};
    Vote vote;
    CHECK(vote.read_each({.first = said.data(), .stride = 1, .ranks = 3, .faults = 1}));
    CHECK((!vote.stop_agreed() && !vote.bad_agreed()));
  }
}
