#include <vector>

#include "catch.hpp"
#include "dat/error.hpp"
#include "run/best.hpp"
#include "train/watch/finite.hpp"

using namespace dat;

TEST_CASE("Catastrophic overfitting is a fall below the best accuracy by more than the margin", "[numbers]") {
  const auto alarms = [](const std::vector<double>& accuracies, double margin) {
    std::vector<std::size_t> found;
    double best = -1;
    for (std::size_t k = 0; k < accuracies.size(); ++k) {
      if (overfits_catastrophically(best, accuracies[k], margin)) found.push_back(k);
      best = std::max(best, accuracies[k]);
    }
    return found;
  };
  using Alarms = std::vector<std::size_t>;
  // FGSM at 8/255: it falls to nothing within an epoch, and may come back.
  CHECK(alarms({0.25, 0.33, 0.38, 0.40, 0.001, 0.0, 0.35, 0.41}, 0.2) == Alarms{4, 5});
  // Over two evaluations, by less than the margin each.
  CHECK(alarms({0.40, 0.25, 0.15}, 0.2) == Alarms{2});
  // Robust overfitting is slow, and none of it.
  CHECK(alarms({0.45, 0.52, 0.53, 0.51, 0.49, 0.47, 0.46, 0.45}, 0.2) == Alarms{});
  CHECK(alarms({0.5, 0.25, 0.249}, 0.25) == Alarms{2});
  // A first evaluation has nothing to fall from; 0 is an accuracy.
  CHECK(alarms({0.0, 0.0}, 0.2) == Alarms{});
}

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
