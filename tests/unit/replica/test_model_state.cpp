#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "replica/model_state.hpp"

using namespace dat;

TEST_CASE("A network is loaded as it was saved, of finite numbers, and of no other network", "[checkpoint]") {
  const auto backend = test::test_backend(1);
  const auto graph = [](int width) { return networks().at("small_cnn")({.width = width, .size = 8}); };
  Model from(*backend, graph(16), Granularity::tensor), to(*backend, graph(16), Granularity::tensor);
  from.initialize(3);
  set_running_statistics(from, test::random_values(2 * from.graph.statistics, 4));
  Checkpoint state;
  save_network(from, state);
  load_network(state, to);
  CHECK(weights_hash(to) == weights_hash(from));
  CHECK(running_statistics(to) == running_statistics(from));
  const auto refusal = [&](const Checkpoint& checkpoint) {
    return message_of([&] { load_network(checkpoint, to); }, ExitCode::checkpoint);
  };
  for (const std::string name : {"optim/x", "attack/x", "codec/x", "param/x", "bn/bn1.x"}) {
    Checkpoint more = state;
    more.arrays.push_back({name, {1}, {0.0F}});
    const bool known = !name.starts_with("param") && !name.starts_with("bn");
    CHECK(refusal(more) ==
          (known ? "" : "the checkpoint's array " + name + " is none of the network's; it belongs to another network"));
  }
  for (std::size_t k = 0; k < state.arrays.size(); ++k) {
    Checkpoint spoilt = state;
    spoilt.arrays[k].values.back() = std::numeric_limits<float>::infinity();
    CHECK(contains(refusal(spoilt), "array " + state.arrays[k].name + " has values that are not finite"));
  }
  Model narrow(*backend, graph(8), Granularity::tensor);
  CHECK(code_of([&] { load_network(state, narrow); }) == ExitCode::checkpoint);
}

TEST_CASE("Averaged weights are taken where they are complete, and it is said where they are not", "[checkpoint]") {
  Checkpoint raw, hasty, complete;
  raw.arrays = {{"param/conv.weight", {1}, {0}}, {"optim/averages/conv.weight", {1}, {0}}};
  hasty.arrays = {{"optim/average/conv.weight", {1}, {0}}};
  complete.arrays = {{"optim/average/conv.weight", {1}, {0}}, {"optim/average/bn.running_mean", {1}, {0}}};
  // auto, raw and average, of their own statistics or not: 1 where the averages are taken, e: an error, !: a notice.
  const auto taken = [](const Checkpoint& checkpoint) {
    std::string all;
    for (const bool rebuilt : {false, true})
      for (const std::string wanted : {"auto", "raw", "average"}) {
        bool takes = false;
        const auto take = [&] { takes = takes_average(checkpoint, wanted, rebuilt, "x.h5"); };
        all += code_of(take) == ExitCode::checkpoint ? "e" : takes ? "1" : "0";
        if (wanted != "average" && !weights_notice(checkpoint, wanted, rebuilt, "x.h5").empty()) all += "!";
      }
    return all;
  };
  CHECK(taken(raw) == "00e00e");
  CHECK(taken(hasty) == "1010!0e");
  CHECK(taken(complete) == "101101");
}
