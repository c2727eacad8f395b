#include <string>

#include "catch.hpp"
#include "forecast/split.hpp"

using namespace dat;

namespace {

/// One tensor of a million elements; an image takes 10 ms to attack and 1 ms to read, 5 ms to train on.
[[nodiscard]] Calibration example() {
  Calibration c;
  c.batch = 10;
  c.data = 0.01;
  c.attack = 0.1;
  c.forward = 0.02;
  c.backward = 0.03;
  c.update = 0.004;
  c.attack_iterations = 10;
  c.image_size = 25;  // 7500 bytes
  c.layers = {{"a", 1000000, 0.03, 0.01}};
  c.codecs = {{.name = "float32", .exact = true, .bytes = {4000000}}};
  return c;
}

[[nodiscard]] Cluster nodes(int ranks, Link link) { return {.ranks = ranks, .between = link, .within = {}}; }

constexpr SplitChoice kSplit{.generators = 1, .staleness = 1, .images = 20, .micro_batch = 5};

}  // namespace

TEST_CASE("without a link a split step is as long as its slower side", "[forecast]") {
  SplitChoice split = kSplit;
  // 1 + 1: the trainer reads and trains 20 images, updates; the generator reads and attacks them.
  SplitForecast one = forecast_split(example(), nodes(2, {}), {}, split);
  CHECK(one.training == Approx(20 * 0.006 + 0.004));
  CHECK(one.attacking == Approx(20 * 0.011));
  CHECK(one.seconds() == Approx(0.22));
  CHECK(one.images_per_second() == Approx(20 / 0.22));

  split.generators =
      3;  // of 4 micro-batches one has two: what a step needs, but not what the generators need in the mean
  one = forecast_split(example(), nodes(4, {}), {}, split);
  CHECK(one.attacking == Approx(20 * 0.011 / 3));
  CHECK(one.round == Approx(10 * 0.011));
  CHECK(one.seconds() == Approx(20 * 0.006 + 0.004));
  CHECK(std::string(one.bound()) == "training");

  split.speed = 0.25;
  one = forecast_split(example(), nodes(4, {}), {}, split);
  CHECK(one.seconds() == Approx(10 * 0.044));
  CHECK(std::string(one.bound()) == "round");
  split.staleness = 4;
  for (const bool refresh : {true, false}) {
    split.refresh = refresh;
    CHECK(forecast_split(example(), nodes(4, {}), {}, split).seconds() == Approx(20 * 0.044 / 3));
  }
}

TEST_CASE("without staleness both sides wait for each other", "[forecast]") {
  SplitChoice split = kSplit;
  split.staleness = 0;
  CHECK(forecast_split(example(), nodes(2, {}), {}, split).seconds() == Approx(0.124 + 0.22));
}

TEST_CASE("weights and images take the busiest link", "[forecast]") {
  const Link link{.latency = 0.001, .bandwidth = 1e6};  // weights take 4.001 s
  SplitChoice split = kSplit;
  split.generators = 3;
  SplitForecast one = forecast_split(example(), nodes(4, link), {}, split);
  CHECK(one.link == Approx(3 * 4.001));
  SplitChoice rounded = split;
  rounded.weight_bytes = 2;
  CHECK(forecast_split(example(), nodes(4, link), {}, rounded).link == Approx(3 * 2.001));
  // Three messages of weights, an attack of two micro-batches, an answer.
  CHECK(one.round == Approx(3 * 4.001 + 10 * 0.011 + 0.001 + 0.0375));
  split.staleness = 2;
  CHECK(forecast_split(example(), nodes(4, link), {}, split).round == Approx(3 * 4.001 + 5 * 0.011 + 0.001 + 0.0375));
  split.refresh = false;
  CHECK(forecast_split(example(), nodes(4, link), {}, split).round ==
        Approx((3 * 4.001 + 10 * 0.011 + 0.001 + 0.0375) / 2));
  // Two trainers sum up 4 MB, in two messages of 2 MB, and each sends weights to one generator.
  split.generators = 2;
  one = forecast_split(example(), nodes(4, link), {}, split);
  CHECK(one.training == Approx(10 * 0.006 + 0.004 + 2 * (0.001 + 2) + 2 * 0.001));  // and an empty second message
  CHECK(one.link == Approx(4.001 + 4));
  // Ranks of a node share its link.
  Cluster shared = nodes(4, link);
  shared.ranks_per_node = 2;
  CHECK(forecast_split(example(), shared, {}, split).link == Approx(8.001 + 8));
}

TEST_CASE("without generators a step is that of all ranks", "[forecast]") {
  SplitChoice split = kSplit;
  split.generators = 0;
  split.images = 40;
  const Link link{.latency = 0.001, .bandwidth = 1e8};
  CHECK(forecast_split(example(), nodes(4, link), {}, split).seconds() ==
        Approx(forecast_step(example(), nodes(4, link), {}).seconds()));
}

TEST_CASE("the best split is the best of all that have work", "[forecast]") {
  const Link link{.latency = 1e-5, .bandwidth = 1e9};
  for (const bool of_each : {false, true}) {
    SplitChoice split = kSplit;
    split.of_each = of_each;
    split.images = of_each ? 10 : 160;
    const SplitForecast best = best_split(example(), nodes(16, link), {}, split, 1);
    double most = 0;
    for (split.generators = 1; split.generators < 16; ++split.generators) {
      const SplitForecast one = forecast_split(example(), nodes(16, link), {}, split);
      CHECK(one.images == (of_each ? 10 * (16 - split.generators) : 160));
      if (split.generators <= 2 * one.images / 5) most = std::max(most, one.images_per_second());
    }
    CHECK(best.images_per_second() == Approx(most));
    CHECK(best.generators > 1);
  }
  // Four micro-batches of two steps: eight generators at most.
  SplitChoice split = kSplit;
  CHECK(best_split(example(), nodes(64, {}), {}, split, 1).generators <= 8);
  // A trainer alone has no sum to wait for, but one micro-batch is work for one generator, of two steps for two.
  const Cluster far = nodes(3, {.latency = 1});
  split = kSplit;
  split.images = 5;
  for (const int staleness : {0, 1}) {
    split.staleness = staleness;
    split.generators = 2;
    const double two = forecast_split(example(), far, {}, split).seconds();
    split.generators = 1;
    CHECK(two < forecast_split(example(), far, {}, split).seconds());
    CHECK(best_split(example(), far, {}, split, 1).generators == staleness + 1);
  }
}
