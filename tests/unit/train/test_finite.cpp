#include "catch.hpp"
#include "move_weights.hpp"
#include "train/watch/finite.hpp"

using namespace dat;

TEST_CASE("Numbers of setbacks that a run cannot have are refused", "[numbers]") {
  SkippedSteps setbacks;
  Checkpoint checkpoint;
  setbacks.save(checkpoint);
  CHECK(checkpoint.doubles.empty());
  checkpoint.doubles["setbacks"] = {2, 1, 0.5};
  setbacks.restore(checkpoint);
  Checkpoint again;
  setbacks.save(again);
  CHECK(again.doubles == checkpoint.doubles);
  checkpoint.doubles["setbacks"] = {0, 0, 1};
  CHECK_NOTHROW(setbacks.restore(checkpoint));
  setbacks.restore({});
  CHECK(setbacks.lr_factor == 1);
  CHECK((setbacks.in_a_row == 0 && setbacks.rollbacks == 0));
  for (const std::vector<double>& wrong :
       {std::vector<double>{}, {1, 1}, {-1, 0, 1}, {0, -1, 1}, {0x1p53, 0, 1}, {0, 0x1p53, 1}, {0, 0, 0}, {0, 0, 2}}) {
    checkpoint.doubles["setbacks"] = wrong;
    CHECK_THROWS_AS(setbacks.restore(checkpoint), Error);
  }
}

TEST_CASE("A rank is believed what it says of numbers where a step may have them", "[numbers]") {
  for (int where = -1; where < 7; ++where)  // five places, of which the last two are in tensors
    for (std::int32_t segment = -2; segment < 5; ++segment) {
      const BadNumbers bad{.where = static_cast<BadNumbers::Where>(where), .segment = segment};
      CHECK(bad.possible(3) == (where >= 0 && where < 5 && segment < 3 && segment > (where < 3 ? -2 : -1)));
    }
}

TEST_CASE("A perturbation of weights along a gradient that is not finite is none of theirs", "[numbers]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> squares = {4, kInfinity, std::nan(""), 0, 4};  // of gradients
  std::vector<double> sums(squares.size() * kSums, 9);
  for (std::size_t k = 0; k < squares.size(); ++k) sums[k * kSums + 1] = squares[k];
  const std::vector<std::uint8_t> perturbed = {1, 1, 1, 1, 0};
  std::vector<float> factors(squares.size());
  const kernels::PerturbationFactor factor{sums.data(), perturbed.data(), factors.data(), 0.5};
  for (std::int64_t k = 0; k < std::ssize(squares); ++k) factor(k);
  CHECK(factors[0] == 0.75F);
  CHECK(std::isnan(factors[1]));
  CHECK(std::isnan(factors[2]));
  CHECK((factors[3] == 0 && factors[4] == 0));
}
