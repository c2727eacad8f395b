#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "replica/model_state.hpp"
#include "small_network.hpp"

using namespace dat;
using namespace dat::test;

TEST_CASE("Averaged weights are taken where they are wanted, or nobody says and they are complete", "[checkpoint]") {
  for (const bool average : {false, true})
    for (const bool statistics : {false, true})
      for (const bool rebuilt : {false, true})
        for (const std::string wanted : {"auto", "raw", "average"}) {
          Checkpoint c;
          c.arrays = {{"param/a.weight", {1}, {1}}, {"bn/b.running_mean", {1}, {1}}};
          if (average) c.arrays.push_back({"optim/average/a.weight", {1}, {1}});
          if (statistics) c.arrays.push_back({"optim/average/b.running_mean", {1}, {1}});
          INFO(average << statistics << rebuilt << wanted);
          CHECK((has_average(c) == average && has_average_statistics(c) == statistics));
          const bool whole = average && (statistics || !rebuilt);
          CHECK(weights_notice(c, wanted, rebuilt, "x.h5").empty() == (wanted != "auto" || !average || whole));
          bool taken = false;
          const std::string error = error_of([&] { taken = takes_average(c, wanted, rebuilt, "x.h5"); });
          CHECK(taken == (wanted != "raw" && whole));
          CHECK(error.starts_with("4: x.h5 ") == (wanted == "average" && !whole));
          CHECK(contains(error, "without --average") == (wanted == "average" && !average));
        }
}

TEST_CASE("A model takes its own arrays of a checkpoint, if they are finite, and refuses those of another network",
          "[checkpoint]") {
  const auto backend = test_backend();
  SmallNetwork from(*backend, 8), to(*backend, 8);
  to.initialize(2);
  const std::vector<float> statistics = random_values(2 * from.graph.statistics, 3);
  set_running_statistics(from, statistics);
  Checkpoint good;
  save_network(from, good);
  const std::size_t own = good.arrays.size();
  for (const char* other : {"optim/x", "attack/x", "codec/x"}) good.arrays.push_back({other, {1}, {std::nanf("")}});
  const std::uint64_t version = to.parameters.version;
  load_network(good, to);
  CHECK((weights_hash(to) == weights_hash(from) && running_statistics(to) == statistics &&
         to.parameters.version > version));
  for (const char* name : {"param/x.weight", "bn/x.running_mean", "x"}) {
    Checkpoint bad = good;
    bad.arrays.push_back({name, {1}, {1}});
    CHECK(contains(error_of([&] { load_network(bad, to); }), "4: the checkpoint's array " + std::string(name) + " is"));
  }
  for (std::size_t k = 0; k < own; ++k) {
    Checkpoint bad = good;
    bad.arrays[k].values.back() = HUGE_VALF;
    CHECK(contains(error_of([&] { load_network(bad, to); }), "has values that are not finite"));
  }
}
