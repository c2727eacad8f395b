// Device memory and MPI, on the double of CUDA's libraries, with a look at each call of MPI (tests/double/mpi.cpp).

#include "../../double/double.hpp"
#include "catch.hpp"
#include "reduce/tree/tree_reducer.hpp"
#include "reduction_case.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

TEST_CASE("No message lies in device memory when MPI gets it, whatever the codec, the transport and the overlap",
          "[reducer]") {
  ReductionCase f(world());
  const ActiveSet active = random_active(f.model.parameters.layers(), 3, 0.7F);
  for (const std::string& codec : codecs().where([](const std::string&) { return true; }))
    for (const std::string& transport : transports_of(*f.codec(codec)))
      for (const bool overlap : {false, true}) {
        for (const std::string sums : {"mpi", "window"}) {
          if (sums == "window" && transport != "sum") continue;
          GradientReducer reducer = f.reducer(
              {.bucket_elements = 1000, .overlap = overlap, .codec_transport = transport, .node_sums = sums}, codec);
          dat_double::mpi() = {};
          f.reduce(reducer, active, 1);
          INFO(codec << " by " << transport << ", " << sums << (overlap ? ", overlapped" : ""));
          CHECK((dat_double::mpi().calls > 0) == (world().size() > 1 && sums == "mpi"));
          CHECK(dat_double::mpi().device_buffers == 0);
          // Beside other work nothing waits but for the butterfly's result.
          const long waited = dat_double::mpi().calls - dat_double::mpi().started;
          if (overlap || transport == "sum")
            CHECK(waited == (transport == "butterfly" && world().size() > 1 ? 1 : 0));
          else
            CHECK(dat_double::mpi().started == 0);
        }
      }
  dat_double::mpi() = {};
  const SummationTree tree(2 * world().size(), world().size());
  TreeReducer reducer(*f.backend, world(), f.model.parameters, f.gradients, tree,
                      {.bucket_elements = 1000, .node_sums = "mpi"});
  reducer.begin({&active, 1}, 1);
  for (int unit = 0; unit < tree.leaves_of(world().rank()); ++unit) (void)reducer.place(unit);
  reducer.finish();
  CHECK(((dat_double::mpi().calls > 0) == (world().size() > 1) && dat_double::mpi().device_buffers == 0));
}

TEST_CASE("Device memory that MPI is given is counted", "[reducer]") {
  if (world().size() == 1) return;
  ReductionCase f(world());
  dat_double::mpi() = {.counts_only = true};
  world().sum(f.gradients, 1);
  world().all_gather(f.gradients, f.gradients + 4, 4);
  CHECK(dat_double::mpi().calls == 2);
  CHECK(dat_double::mpi().device_buffers == 3);  // a sum is in place
  dat_double::mpi() = {};
}
