#include "by_epoch.hpp"
#include "datasets.hpp"
#include "forecast/calibration.hpp"
#include "run/settle_generators.hpp"
#include "small_run.hpp"

using namespace dat;

namespace {

using Change = std::function<void(TrainOptions&, Calibration&)>;

/// Writes a calibration where the options name it.
void write(const Calibration& calibration, const TrainOptions& options) {
  write_bytes(options.calibration, to_json(calibration).dump());
}

/// Of 4 images: half a second to read them, 4 to attack them in 4 iterations, 12 to train on them in two passes.
[[nodiscard]] Calibration of_two_layers() {
  Calibration c;
  c.batch = 4;
  c.image_size = 8;
  c.data = 0.5;
  c.attack = c.forward = c.attack_iterations = 4;
  c.backward = 8;
  c.backward_passes = 2;
  c.select = 0.25;
  c.update = 0.5;
  c.layers = {{"a", 750000, 2, 1}, {"b", 250000, 2, 1}};
  c.codecs = {
      {.name = "int8", .encode = 1e-6}, {.name = "int8/two_sided", .encode = 2e-6}, {.name = "float32", .exact = true}};
  for (Calibration::Codec& codec : c.codecs) codec.bytes = {3000000, 1000000};
  return c;
}

/// Four steps of eight images, each attacked in two iterations.
[[nodiscard]] TrainOptions of_one_rank(const std::string& calibration) {
  TrainOptions options = test::small_run();
  options.batch = 8;
  options.lambda = 1;
  options.selector = "all";
  options.calibration = calibration;
  return options;
}

void set_budget(TrainOptions& options, double budget) {
  options.selector = "exp3";
  options.budget = budget;
}

}  // namespace

TEST_CASE("A forecast of a run has its images, iterations, passes, layers and codec", "[forecast]") {
  const TemporaryFolder folder;
  const test::Given images(32);
  const std::vector<std::pair<double, Change>> rows{
      {1 + 4 + 8 + 16 + 0.75, [](auto&, auto&) {}},
      {1 + 12 + 8 + 16 + 0.75, [](auto& o, auto&) { o.attack_steps = 6; }},
      {1 + 0 + 8 + 16 + 0.75, [](auto& o, auto&) { o.attack = "none"; }},
      {1 + 16 + 8 + 16 + 0.75, [](auto&, auto& c) { c.attack_iterations = 0; }},
      {1 + 4 + 4 + 8 + 0.75, [](auto& o, auto&) { o.lambda = 0; }},
      // A prediction that both passes look at is made once more.
      {1 + 4 + 12 + 16 + 0.75, [](auto& o, auto&) { o.loss = "trades"; }},
      {1 + 4 + 24 + 32 + 0.75, [](auto& o, auto&) { o.loss = "trades", o.awp_gamma = 0.01; }},
      // The gradient of a layer's weights takes 2 of the 8 seconds of a pass.
      {1 + 4 + 8 + 16 - 4 + 0.75, [](auto& o, auto&) { set_budget(o, 1); }},
      {1 + 4 + 4 + 8 - 2 + 0.75, [](auto& o, auto&) { set_budget(o, 1), o.lambda = 0; }},
      {1 + 4 + 8 + 16 - 8 * 14 / 54.0 + 0.75, [](auto& o, auto&) { set_budget(o, 0); }},
      {29.75, [](auto& o, auto&) { set_budget(o, 1), o.granularity = "block"; }},
      {29.75, [](auto& o, auto&) { set_budget(o, 3); }},
      // In mean layers' bytes, of which the first one has 1.5: its probability is .45, the other one's (1 - .675) / .5.
      {29.75 - 4 * (0.55 + 0.35), [](auto& o, auto&) { set_budget(o, 1), o.budget_unit = "bytes", o.p_min = 0.45; }},
      {30.75, [](auto& o, auto&) { o.codec = "int8", o.codec_transport = "gather"; }},
      {31.75, [](auto& o, auto&) { o.codec = "int8", o.codec_transport = "two_sided"; }},
      // Four steps of eight images, two of sixteen.
      {29.75 + 2 * (58 + 0.75) / 4, [](auto& o, auto&) {
         o.batch = test::by_epoch({{8, 0}, {16, 1}}), o.epochs = 2;
       }}};
  for (std::size_t k = 0; k < rows.size(); ++k) {
    TrainOptions options = of_one_rank(folder / "calibration.json");
    Calibration calibration = of_two_layers();
    rows[k].second(options, calibration);
    write(calibration, options);
    INFO("row " << k);
    CHECK(forecast_of_run(options, images, 1, 1).value_or(0) == Approx(4 * rows[k].first));
  }
  TrainOptions options = of_one_rank(folder / "calibration.json");
  options.train_size = test::by_epoch({{8, 0}, {16, 1}});
  CHECK(!forecast_of_run(options, images, 1, 1));
  options.train_size = 0;
  Calibration calibration = of_two_layers();
  calibration.image_size = 9;
  write(calibration, options);
  CHECK(!forecast_of_run(options, images, 1, 1));
}

TEST_CASE("A calibration of another network or arithmetic is refused; a CPU's f32 is what tf32 is there",
          "[forecast]") {
  const TemporaryFolder folder;
  const TrainOptions options = of_one_rank(folder / "calibration.json");
  const auto told = [&](const nlohmann::ordered_json& about) {
    Calibration calibration = of_two_layers();
    calibration.about = about;
    write(calibration, options);
    return error_of([&] { (void)forecast_of_run(options, test::Given(32), 1, 1); });
  };
  CHECK(told({{"device", "cpu"}, {"math", "f32"}, {"network", "small_cnn"}, {"width", 16}}) == "none");
  CHECK(told({{"device", "gpu"}, {"math", "tf32"}, {"attack_precision", "f32"}, {"precision", "f32"}}) == "none");
  const std::vector<std::pair<nlohmann::ordered_json, std::string>> refused{
      {{{"device", "cpu"}, {"math", "tf32"}}, R"(--math "tf32", this run "f32";)"},
      {{{"device", "gpu"}, {"math", "f32"}}, R"(--math "f32", this run "tf32";)"},
      {{{"math", "f32"}}, R"(--math "f32", this run "tf32";)"},
      {{{"network", "resnet18"}}, R"(--network "resnet18", this run "small_cnn";)"},
      {{{"width", 8}}, "--width 8, this run 16;"},
      {{{"attack_precision", "f16"}}, R"(--attack-precision "f16", this run "f32";)"},
      {{{"precision", "bf16"}}, R"(--precision "bf16", this run "f32";)"}};
  for (const auto& [about, words] : refused) CHECK(told(about).starts_with("2: the calibration has " + words));
}

TEST_CASE("As many ranks only attack as a forecast says", "[forecast]") {
  const TemporaryFolder folder;
  struct Row {
    std::string told;  ///< generators, images a second with them, and with none
    Change change;
    int on_node = 2;
  };
  // Two ranks that train on 24 images: 0.15 s for the attack and 0.18 s for two passes, then the sum of 400 MB in 0.4
  // s. One that trains: 0.36 s; the other one has the weights after 0.4 s, and an attack of 0.3 s in eight steps' time.
  const Link fast{.latency = 0, .bandwidth = 2e9}, window{.latency = 0, .bandwidth = 8e9};
  const std::vector<Row> rows{
      {"1 54.9 32.9", [](auto&, auto&) {}},
      {"1 34.3 32.9", [](auto& o, auto&) { o.staleness = 1; }},
      {"0 32.9 32.9", [](auto& o, auto&) { o.staleness = 0; }},
      {"1 66.7 32.9", [](auto& o, auto&) { o.generator_weights = "bf16"; }},
      {"1 60.0 32.9", [](auto& o, auto&) { o.attack_stop = 0; }},  // the oldest weights for the whole attack
      {"0 32.9 32.9", [](auto& o, auto&) { o.total_batch = 0, o.batch = 12; }},  // where one trains, half the images
      {"1 54.9 22.6", [](auto& o, auto&) { o.micro_batch = 24; }},
      {"1 56.9 33.0", [](auto& o, auto&) { o.total_batch = 25, o.micro_batch = 0; }},  // 13 on one of two ranks
      {"1 54.9 37.5", [](auto& o, auto&) { o.lambda = 0; }},
      {"1 54.9 34.3", [](auto& o, auto&) { o.overlap = true, o.bucket = 0; }},  // half of the sum beside half of a pass
      {"1 54.9 32.9", [](auto& o, auto&) { o.overlap = true; }},
      {"1 54.9 25.8", [](auto&, auto& c) { c.reduction = 1e9; }},
      {"1 66.7 45.3", [&](auto&, auto& c) { c.between = fast, c.within.reset(); }, 1},
      {"0 63.2 63.2", [&](auto&, auto& c) { c.window = window; }},
      {"0 63.2 63.2", [&](auto& o, auto& c) { o.node_sums = "window", c.window = window; }, 8},  // there is more room
      {"1 54.9 32.9", [&](auto& o, auto& c) { o.node_sums = "mpi", c.window = window; }}};
  const auto run = [&](const Change& change) {
    Calibration c;
    c.ranks = 2;
    c.batch = 4;
    c.image_size = 8;
    c.attack = 0.1;
    c.attack_iterations = 8;
    c.forward = 0.01;
    c.backward = 0.02;
    c.layers = {{"a", 50000000, 0.01, 0.005}, {"b", 50000000, 0.01, 0.005}};
    c.codecs = {{.name = "float32", .exact = true, .bytes = {200000000, 200000000}}};
    c.within = Link{.latency = 0, .bandwidth = 1e9};
    TrainOptions options = of_one_rank(folder / "calibration.json");
    options.batch = 0;
    options.total_batch = 24;
    options.micro_batch = 4;
    options.attack_steps = 4;
    options.staleness = 8;
    options.bucket = 100000000;
    options.generators = -1;
    change(options, c);
    write(c, options);
    return options;
  };
  for (std::size_t k = 0; k < rows.size(); ++k) {
    TrainOptions options = run(rows[k].change);
    INFO("row " << k);
    const std::string &told = rows[k].told, best = told.substr(2, 4), none = told.substr(7);
    CHECK(settle_generators(options, 2, rows[k].on_node) == "--generators auto: " + told.substr(0, 1) +
                                                                " of 2 ranks, by a forecast: " + best + " images/s, " +
                                                                none + " with none");
    CHECK((options.generators == told[0] - '0' && options.calibration.empty()));
  }
  // Links that have not been measured; who trains alone, or has said how many, needs none.
  const auto refused = [&](const Change& change, int on_node) {
    TrainOptions options = run(change);
    return message_of([&] { (void)settle_generators(options, 2, on_node); }, ExitCode::usage);
  };
  CHECK(contains(refused([](auto&, auto& c) { std::swap(c.between, c.within); }, 2), "of a node;"));
  CHECK(contains(refused([](auto&, auto&) {}, 1), "of several nodes;"));
  for (const auto& [asked, told] :
       {std::pair(-1, "--generators auto: none, for one rank trains"), std::pair(1, ""), std::pair(0, "")}) {
    TrainOptions options = run([](auto&, auto&) {});
    options.generators = asked;
    CHECK(settle_generators(test::single(), options) == told);
    CHECK((options.generators == std::max(0, asked) && options.calibration.empty()));
    options.generators = -1;
    CHECK((settle_generators(options, 1, 1).empty() && options.generators == -1));  // without a calibration
  }
}
