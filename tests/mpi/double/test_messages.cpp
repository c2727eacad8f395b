// Which memory MPI gets, on the double of CUDA's libraries and of a CUDA-aware MPI (tests/double/mpi.cpp).

#include "../../double/double.hpp"
#include "catch.hpp"
#include "dat/selector.hpp"
#include "reduction_case.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

TEST_CASE("MPI gets device memory where it takes it, and never for a message beside other work", "[reducer]") {
  if (world().size() == 1) return;
  for (const std::string aggregator : {"mean", "largest"}) {  // a sum; messages of all ranks to all
    ReductionCase f(world());
    const ActiveSet active = random_active(f.model.parameters.layers(), 3, 0.7F);
    std::vector<float> expected;
    for (const bool aware : {false, true})
      for (const bool overlap : {false, true}) {
        dat_double::mpi() = {.takes_device_memory = aware};
        CHECK(world().takes_device_memory() == aware);
        GradientReducer reducer =
            f.reducer({.bucket_elements = 1000, .overlap = overlap, .node_sums = "mpi"}, "float32", aggregator);
        const auto ours = f.reduce(reducer, active, 1);
        const dat_double::Mpi got = dat_double::mpi();
        INFO(aggregator << (aware ? ", CUDA-aware" : "") << (overlap ? ", overlapped" : ""));
        // Of a group on one node, sums go beside other work, which may be none.
        const bool sum = aggregator == "mean";
        CHECK((got.device_messages > 0) == (aware && !overlap && !sum));
        CHECK((got.messages_beside_other_work > 0) == (overlap || sum));
        if (expected.empty()) expected = ours;
        CHECK(differing(ours, expected) == 0);  // two ranks: every sum has one order
        if (!sum) continue;
        dat_double::mpi() = {.takes_device_memory = aware};
        GradientReducer window =
            f.reducer({.bucket_elements = 1000, .overlap = overlap, .node_sums = "window"}, "float32", aggregator);
        CHECK(differing(f.reduce(window, active, 1), expected) == 0);
        CHECK(dat_double::mpi().device_messages == 0);
        CHECK(dat_double::mpi().messages_beside_other_work == 0);
      }
  }
  dat_double::mpi() = {};
}
