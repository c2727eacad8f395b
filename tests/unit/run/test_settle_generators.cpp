#include "by_epoch.hpp"
#include "catch.hpp"
#include "forecast/calibration.hpp"
#include "run/settle_generators.hpp"
#include "small_run.hpp"

using namespace dat;

namespace {

/// A rank's step of 16 images: 4 iterations of the attack, and 2 passes, of which each goes back in 3 seconds.
[[nodiscard]] Calibration measured() {
  Calibration c;
  c.batch = 16;
  c.data = 1;
  c.attack = 8;
  c.attack_iterations = 4;
  c.forward = 2;
  c.backward = 6;
  c.backward_passes = 2;
  c.select = 0.5;
  c.update = 0.25;
  c.layers = {{"a", 1000, 1.5, 1}, {"b", 1000, 1.5, 0.5}};
  const std::vector<std::int64_t> bytes = {4000, 4000};
  c.codecs = {{.name = "float32", .exact = true, .bytes = bytes},
              {.name = "int8", .encode = 0.001, .bytes = bytes},
              {.name = "int8/butterfly", .encode = 0.003, .bytes = bytes}};
  return c;
}

/// 4 steps an epoch of PGD's 2 iterations, which train all layers.
[[nodiscard]] TrainOptions options_with(const Calibration& c, const TemporaryFolder& folder) {
  TrainOptions options = test::small_run();
  options.calibration = folder / "calibration.json";
  options.selector = "all";
  options.lambda = 0;
  options.generators = -1;
  write_bytes(options.calibration, to_json(c).dump());
  return options;
}

}  // namespace

TEST_CASE("A forecast of generators has sums in a node's memory where a run makes them there", "[forecast]") {
  const TemporaryFolder folder;
  Calibration c = measured();
  c.ranks = 2;
  c.within = Link{.latency = 0, .bandwidth = 1e3};
  const auto told = [&](const std::string& node_sums) {
    TrainOptions options = options_with(c, folder);
    options.node_sums = node_sums;
    return settle_generators(options, 2, 2);
  };
  const std::string messages = told("mpi");
  CHECK((told("auto") == messages && told("window") == messages));  // it was not measured
  c.window = Link{.latency = 0, .bandwidth = 1e12};
  CHECK(told("mpi") == messages);
  // Two ranks have 32 images in 9.75 seconds.
  CHECK(told("window") == "--generators auto: 0 of 2 ranks, by a forecast: 3.3 images/s, 3.3 with none");
  CHECK(told("window") != messages);
  CHECK(told("auto") == told("window"));
}

TEST_CASE("A forecast of a run counts its steps, and its attack, passes and layers by what was measured",
          "[forecast]") {
  const TemporaryFolder folder;
  const auto train = synthetic_dataset({.train = 64}, "train");
  const auto forecast = [&](void (*change)(TrainOptions&), const Calibration& c = measured()) {
    TrainOptions options = options_with(c, folder);
    change(options);
    return forecast_of_run(options, *train, 1, 1);
  };
  const double straight = 4 * 9.75;  // 1 for data, 4 for the attack, 1 and 3 for the pass, .75
  for (const auto& [change, seconds] : std::vector<std::pair<void (*)(TrainOptions&), double>>{
           {[](TrainOptions&) {}, straight},
           {[](TrainOptions& o) { o.attack = "fgsm"; }, 4 * 7.75},
           {[](TrainOptions& o) { o.lambda = 1; }, 4 * 13.75},        // two passes
           {[](TrainOptions& o) { o.loss = "trades"; }, 4 * 14.75},   // and one of them forward once more
           {[](TrainOptions& o) { o.awp_gamma = 0.01; }, 4 * 13.75},  // the pass twice
           {[](TrainOptions& o) { o.loss = "trades", o.awp_gamma = 0.01; }, 4 * 23.75},
           {[](TrainOptions& o) { o.selector = "uniform", o.budget = 1; }, 4 * 9.0},  // half of 1.5 is saved
           {[](TrainOptions& o) { o.selector = "uniform", o.budget = 1, o.budget_unit = "bytes"; }, 4 * 9.0},
           {[](TrainOptions& o) { o.selector = "uniform"; }, 4 * (9.75 - 1.5 * 14 / 54)},
           // Other layers than were measured.
           {[](TrainOptions& o) { o.selector = "uniform", o.budget = 1, o.granularity = "module"; }, straight},
           {[](TrainOptions& o) { o.selector = "uniform", o.budget = 3; }, straight},
           {[](TrainOptions& o) { o.total_batch = 32, o.batch = 0, o.micro_batch = 16; }, 2 * 18.75},
           {[](TrainOptions& o) {
              o.batch = test::by_epoch({{16, 0}, {32, 1}}), o.epochs = 2, o.micro_batch = 16;
            },
            straight + 2 * 18.75}}) {
    CAPTURE(seconds);
    CHECK(forecast(change).value() == Approx(seconds));
  }
  // A codec by another transport than its first has a row of its own.
  const double first = forecast([](TrainOptions& o) { o.codec = "int8"; }).value() - straight;
  CHECK(first > 0);
  CHECK(forecast([](TrainOptions& o) { o.codec = "int8", o.codec_transport = "butterfly"; }).value() - straight ==
        Approx(3 * first));
  Calibration other = measured();
  other.image_size = 24;
  CHECK(!forecast([](TrainOptions&) {}, other));
  CHECK(!forecast([](TrainOptions& o) { o.train_size = test::by_epoch({{24, 0}, {0, 1}}); }));
}

TEST_CASE("A calibration is refused that is of something else, or lacks the messages of these ranks", "[forecast]") {
  const TemporaryFolder folder;
  using Json = nlohmann::ordered_json;
  const std::string kind = "; a forecast needs one of this run's network and arithmetic",
                    lacks = "2: the calibration has not measured messages between ranks of ",
                    made = "; a forecast needs one that two or more ranks have made there";
  for (const auto& [about, on_node, refusal] : std::vector<std::tuple<Json, int, std::string>>{
           {{{"network", "small_cnn"}, {"width", 16}}, 2, lacks + "a node" + made},
           {{{"network", "vgg"}}, 2, "2: the calibration has --network \"vgg\", this run \"small_cnn\"" + kind},
           {{{"attack_precision", "f16"}},
            1,
            "2: the calibration has --attack-precision \"f16\", this run \"f32\"" + kind},
           // A CPU takes tf32 as f32.
           {{{"device", "cpu: one core"}, {"math", "f32"}}, 1, lacks + "several nodes" + made},
           {{{"device", "a GPU"}, {"math", "f32"}},
            1,
            "2: the calibration has --math \"f32\", this run \"tf32\"" + kind}}) {
    Calibration c = measured();
    c.about = about;
    TrainOptions options = options_with(c, folder);
    CHECK(error_of([&] { (void)settle_generators(options, 2, on_node); }) == refusal);
  }
  TrainOptions options = options_with(measured(), folder);
  CHECK(settle_generators(options, 1, 1) == "--generators auto: none, for one rank trains");
  CHECK((options.generators == 0 && options.calibration.empty()));
}
