#include <vector>

#include "catch.hpp"
#include "dat/error.hpp"
#include "train/watch/finite.hpp"

using namespace dat;

TEST_CASE("Numbers of setbacks that a run cannot have are refused", "[numbers]") {
  Setbacks setbacks;
  Checkpoint checkpoint;
  setbacks.save(checkpoint);
  CHECK(checkpoint.doubles.empty());
  checkpoint.doubles["setbacks"] = {2, 1, 0.5};
  setbacks.restore(checkpoint);
  Checkpoint again;
  setbacks.save(again);
  CHECK(again.doubles == checkpoint.doubles);
  setbacks.restore({});
  CHECK(setbacks.lr_factor == 1);
  CHECK((setbacks.in_a_row == 0 && setbacks.rollbacks == 0));
  for (const std::vector<double>& wrong :
       {std::vector<double>{}, {1, 1}, {-1, 0, 1}, {0, 1e300, 1}, {0, 0, 0}, {0, 0, 2}}) {
    checkpoint.doubles["setbacks"] = wrong;
    CHECK_THROWS_AS(setbacks.restore(checkpoint), Error);
  }
}
