#include "catch.hpp"
#include "forecast/roles.hpp"

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

constexpr RoleChoice kRoles{.generators = 1, .staleness = 1, .images = 20, .micro_batch = 5};

}  // namespace

TEST_CASE("without a link a step of trainers and generators is as long as its slower side", "[forecast]") {
  RoleChoice roles = kRoles;
  // 1 + 1: the trainer reads and trains 20 images, updates; the generator reads and attacks them.
  RoleForecast one = forecast_roles(example(), nodes(2, {}), {}, roles);
  CHECK(one.training == Approx(20 * 0.006 + 0.004));
  CHECK(one.attacking == Approx(20 * 0.011));
  CHECK(one.seconds() == Approx(0.22));
  CHECK(one.images_per_second() == Approx(20 / 0.22));

  roles.generators =
      3;  // of 4 micro-batches one has two: what a step needs, but not what the generators need in the mean
  one = forecast_roles(example(), nodes(4, {}), {}, roles);
  CHECK(one.attacking == Approx(20 * 0.011 / 3));
  CHECK(one.round == Approx(10 * 0.011));
  CHECK(one.seconds() == Approx(20 * 0.006 + 0.004));
  CHECK(std::string(one.bound()) == "training");

  roles.speed = 0.25;
  one = forecast_roles(example(), nodes(4, {}), {}, roles);
  CHECK(one.seconds() == Approx(10 * 0.044));
  CHECK(std::string(one.bound()) == "round");
  roles.staleness = 4;
  for (const bool refresh : {true, false}) {
    roles.refresh = refresh;
    CHECK(forecast_roles(example(), nodes(4, {}), {}, roles).seconds() == Approx(20 * 0.044 / 3));
  }
}

TEST_CASE("without staleness both sides wait for each other", "[forecast]") {
  RoleChoice roles = kRoles;
  roles.staleness = 0;
  CHECK(forecast_roles(example(), nodes(2, {}), {}, roles).seconds() == Approx(0.124 + 0.22));
}

TEST_CASE("weights and images take the busiest link", "[forecast]") {
  const Link link{.latency = 0.001, .bandwidth = 1e6};  // weights take 4.001 s
  RoleChoice roles = kRoles;
  roles.generators = 3;
  RoleForecast one = forecast_roles(example(), nodes(4, link), {}, roles);
  CHECK(one.link == Approx(3 * 4.001));
  RoleChoice rounded = roles;
  rounded.weight_bytes = 2;
  CHECK(forecast_roles(example(), nodes(4, link), {}, rounded).link == Approx(3 * 2.001));
  // Three messages of weights, an attack of two micro-batches, an answer.
  CHECK(one.round == Approx(3 * 4.001 + 10 * 0.011 + 0.001 + 0.0375));
  roles.staleness = 2;
  CHECK(forecast_roles(example(), nodes(4, link), {}, roles).round == Approx(3 * 4.001 + 5 * 0.011 + 0.001 + 0.0375));
  roles.refresh = false;
  CHECK(forecast_roles(example(), nodes(4, link), {}, roles).round ==
        Approx((3 * 4.001 + 10 * 0.011 + 0.001 + 0.0375) / 2));
  // Two trainers sum up 4 MB, in two messages of 2 MB, and each sends weights to one generator.
  roles.generators = 2;
  one = forecast_roles(example(), nodes(4, link), {}, roles);
  CHECK(one.training == Approx(10 * 0.006 + 0.004 + 2 * (0.001 + 2) + 2 * 0.001));  // and an empty second message
  CHECK(one.link == Approx(4.001 + 4));
  // Ranks of a node share its link.
  Cluster shared = nodes(4, link);
  shared.ranks_per_node = 2;
  CHECK(forecast_roles(example(), shared, {}, roles).link == Approx(8.001 + 8));
  const Cluster one_node{.ranks = 4, .ranks_per_node = 4, .between = {}, .within = link};
  CHECK(forecast_roles(example(), one_node, {}, roles).link == Approx(4.001 + 4));
  // Twice as many images as were measured, half of a layer: of the backward pass 60 - 10 ms, then 2 MB leave.
  roles = kRoles;
  roles.images = 40;
  const StepChoice half{.probabilities = {0.5}, .overlap = true};
  CHECK(forecast_roles(example(), nodes(3, link), half, roles).training ==
        Approx(0.02 + 0.04 + 0.05 + 2 * (0.001 + 1) + 2 * 0.001 + 0.004));
}

TEST_CASE("without generators a step is that of all ranks", "[forecast]") {
  RoleChoice roles = kRoles;
  roles.generators = 0;
  roles.images = 40;
  const Link link{.latency = 0.001, .bandwidth = 1e8};
  CHECK(forecast_roles(example(), nodes(4, link), {}, roles).seconds() ==
        Approx(forecast_step(example(), nodes(4, link), {}).seconds()));
}

TEST_CASE("the best number of generators is the best of all that have work", "[forecast]") {
  const Link link{.latency = 1e-5, .bandwidth = 1e9};
  for (const bool of_each : {false, true}) {
    RoleChoice roles = kRoles;
    roles.of_each = of_each;
    roles.images = of_each ? 10 : 160;
    const RoleForecast best = best_roles(example(), nodes(16, link), {}, roles, 1);
    double most = 0;
    for (roles.generators = 1; roles.generators < 16; ++roles.generators) {
      const RoleForecast one = forecast_roles(example(), nodes(16, link), {}, roles);
      CHECK(one.images == (of_each ? 10 * (16 - roles.generators) : 160));
      if (roles.generators <= 2 * one.images / 5) most = std::max(most, one.images_per_second());
    }
    CHECK(best.images_per_second() == Approx(most));
    CHECK(best.generators > 1);
  }
  // Four micro-batches of two steps: eight generators at most, and more than four are no faster.
  RoleChoice roles = kRoles;
  CHECK(best_roles(example(), nodes(64, {}), {}, roles, 1).generators == 4);
  // A trainer alone has no sum to wait for, but one micro-batch is work for one generator, of two steps for two.
  const Cluster far = nodes(3, {.latency = 1});
  roles = kRoles;
  roles.images = 5;
  for (const int staleness : {0, 1}) {
    roles.staleness = staleness;
    roles.generators = 1;
    const double one = forecast_roles(example(), far, {}, roles).seconds();
    roles.generators = 2;
    CHECK(forecast_roles(example(), far, {}, roles).seconds() < one);
    CHECK(best_roles(example(), far, {}, roles, 1).generators == staleness + 1);
  }
}
