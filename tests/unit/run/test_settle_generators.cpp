#include "catch.hpp"
#include "forecast/calibration.hpp"
#include "run/settle_generators.hpp"
#include "small_run.hpp"

using namespace dat;

TEST_CASE("A forecast of generators has sums in a node's memory where a run makes them there", "[forecast]") {
  const TemporaryFolder folder;
  Calibration c;
  c.ranks = 2;
  c.attack = c.forward = 0.01;
  c.backward = 0.02;
  c.layers = {{"all", 1000000, 0.02, 0.01}};
  c.codecs = {{.name = "float32", .exact = true, .bytes = {4000000}}};
  c.within = Link{.latency = 0, .bandwidth = 1e6};
  const auto told = [&](const std::string& node_sums) {
    write_bytes(folder / "calibration.json", to_json(c).dump());
    TrainOptions options = test::small_run();
    options.selector = "all";
    options.generators = -1;
    options.calibration = folder / "calibration.json";
    options.node_sums = node_sums;
    return settle_generators(options, 2, 2);
  };
  const std::string messages = told("mpi");
  CHECK((told("auto") == messages && told("window") == messages));  // it was not measured
  c.window = Link{.latency = 0, .bandwidth = 1e12};
  CHECK(told("mpi") == messages);
  CHECK(told("window") != messages);
  CHECK(told("auto") == told("window"));
}
