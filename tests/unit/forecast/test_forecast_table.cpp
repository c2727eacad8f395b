#include <regex>

#include "catch.hpp"
#include "environment.hpp"
#include "forecast/forecast_table.hpp"

using namespace dat;

TEST_CASE("A forecast's table is of what was measured, and of the cluster that is asked for", "[forecast]") {
  // 100 ms of computing for 8 images, of which the attack and reading them take 70; gradients of 8 MB, or of 4.
  Calibration c;
  c.about = {{"network", "my net"}, {"width", 7}, {"attack", "pgd"}, {"device", "a~\x1f\x7f cpu"}};
  c.batch = 8;
  c.attack_iterations = 6;
  c.data = c.forward = c.backward = 0.01;
  c.attack = 0.06;
  c.select = c.update = 0.005;
  c.layers = {{"a", 1000000, 0.005, 0}, {"b", 1000000, 0.005, 0}};
  c.codecs = {{.name = "float32", .exact = true, .bytes = {4000000, 4000000}},
              {.name = "half", .bytes = {2000000, 2000000}}};
  ForecastOptions o;
  o.bucket = 8 << 20;
  o.ranks = {2, 4, 3};
  o.bandwidth = {"0.1GB/s"};
  o.latency = {0};
  o.staleness = 4;
  const auto table = [&] { return std::regex_replace(forecast_table(o, c), std::regex(" +"), " "); };
  // Half of 8 MB, or all of 4, go each way; of a budget of 1.48 layers 5.93 MB.
  CHECK(table() == R"(my net, width 7, batch 8 a rank, attack pgd (6 gradients), a~?? cpu, measured by 1 rank
computing 100.00 ms: data 10.00, attack 60.00, forward 10.00, backward 10.00, select 5.00, update 5.00
gradients 8.0 MB in 2 tensors
codec float32 8.00 MB, encode 0.00 ms, decode 0.00 ms
codec half 4.00 MB, encode 0.00 ms, decode 0.00 ms

A model, nothing measured from here on: each rank with its own batch, 1 rank a node, sums by ring, not overlapped.

0.1GB/s: 0.0 us, 100.0 MB/s
 ranks ring, ms tree, ms exposed, ms step, ms efficiency images/s best step, ms gain
 2 80.000 80.000 80.000 180.000 55.6% 88.9 half 140.000 1.29x
 4 120.000 120.000 120.000 220.000 45.5% 145.5 half 160.000 1.38x
 3 106.667 240.000 106.667 206.667 48.4% 116.1 half 153.333 1.35x
 half pays: 1.29x at 2 ranks to 1.38x at 4
 budget 1.48 of 2 pays: 1.13x at 2 ranks to 1.16x at 4
 generators, --staleness 4, pay: 1.14x at 4 ranks, 2 of them generators (half; the step waits for attacking)
)");
  o.budget = {0.5};
  CHECK((contains(table(), " budget 0.5 of 2 pays: ") && !contains(table(), " budget 1.48 of 2 ")));
  o.budget = {};
  std::tie(o.ranks, o.staleness) = std::pair(std::vector{2, 4}, 1);
  CHECK(contains(table(), "where: at most 0.72x at 4 ranks, 2 of them generators (float32; the step waits for round"));
  // Two nodes of two: sums in their memory, then over the link. One rank that attacks four times as fast.
  c.ranks = 2;
  c.within = Link{.latency = 0, .bandwidth = 1e9};
  c.between = Link{.latency = 1e-3, .bandwidth = 1e8};
  c.window = Link{.latency = 1e-3, .bandwidth = 8e9};
  o.ranks_per_node = 2;
  o.bandwidth = {"measured"};
  o.generators = 1;
  o.staleness = 2;
  o.micro_batch = 4;
  o.generator_weights = "bf16";
  o.generator_speed = 4;
  const std::string two = table();
  CHECK(contains(two, ", measured by 2 ranks\n"));
  CHECK(contains(two, "\nsums in the memory of a node 1000.0 us and 8.00 GB/s\n"));
  // The file has the same; without gnuplot there are no pictures.
  const TemporaryFolder folder;
  const test::Environment path("PATH", "/nowhere");
  o.out = folder.path();
  CHECK(table() == two + "\n" + folder.path() + "/forecast.json\n");
  nlohmann::json file = nlohmann::json::parse(read_bytes(folder / "forecast.json"));
  CHECK((file["format_version"] == 1 && file["filetype"] == "dat_hpc forecast"));
  nlohmann::json row = file["networks"][0]["rows"][1];
  CHECK(row["choices"][1]["gain"].get<double>() == Approx(0.19 / 0.1495));
  row.erase("choices");
  for (const auto& [name, number] : {std::pair("ring", .126), {"tree", .09}, {"efficiency", .1 / .19}}) {
    CHECK(row[name].get<double>() == Approx(number));
    row.erase(name);
  }
  // 32 images of 70 ms / 8 / 4; on half of the link 4 MB of weights, and 4 images of 12,288 bytes.
  CHECK((row["roles"]["generators"] == 1 && row["roles"]["attacking"].get<double>() == Approx(.07)));
  CHECK(row["roles"]["round"].get<double>() == Approx(.001 + .08 + .07 / 2 + .001 + 4 * 12288 / 5e7));
  row.erase("roles");
  CHECK(row == nlohmann::json{{"ranks", 4}, {"best", "half"}});
  o.out = "";
  write_calibration(o, c);
  CHECK(!std::filesystem::remove("/calibration.json"));
  CHECK(two.substr(two.find("batch, 2 ")) == R"(batch, 2 ranks a node, sums by ring, not overlapped.

measured: 1000.0 us, 100.0 MB/s; inside a node 0.0 us, 1000.0 MB/s
 ranks ring, ms tree, ms exposed, ms step, ms efficiency images/s best step, ms gain
 2 8.000 8.000 2.000 102.000 98.0% 156.9 nothing else pays 101.500 1.00x
 4 126.000 90.000 90.000 190.000 52.6% 168.4 half 149.500 1.27x
 half pays: 1.27x at 4 ranks
 budget 1.48 of 2 pays: 1.12x at 4 ranks
 generators, --staleness 2, pay: 1.45x at 2 ranks, 1 of them generators (float32; the step waits for training)
)");
  // Networks by name: with a latency each, or that which was measured.
  o.bandwidth = {"0.1GB/s", "0.2GB/s"};
  o.latency = {10, 20};
  CHECK(contains(table(), "\n0.2GB/s: 20.0 us, 200.0 MB/s;"));
  std::tie(o.bandwidth, o.latency) = std::pair(std::vector<std::string>{}, std::vector<double>{});
  CHECK(contains(table(), "not overlapped.\n\nmeasured: 1000.0 us, 100.0 MB/s;"));
  CHECK(contains(table(), "\n1gbit: 1000.0 us, 117.7 MB/s;"));
  c.between.reset();
  CHECK(contains(table(), "\n\nmeasured: 0.0 us, 1000.0 MB/s;"));
  CHECK(contains(table(), "\n1gbit: 30.0 us, 117.7 MB/s;"));
  std::tie(o.bandwidth, o.latency) = std::pair(std::vector<std::string>{"1000GB/s"}, std::vector<double>{0});
  CHECK(contains(table(), "\n nothing pays: at most 2.0 % of a step is communication that nothing covers\n"));
  c.within->latency = 2e-6;
  CHECK(contains(table(), "; inside a node 2.0 us, 1000.0 MB/s\n"));
  // What is said of a network or a codec is looked at before anything is measured.
  using Words = std::vector<std::string>;
  for (const auto& [networks, names, wrong] : {std::tuple(Words{"measured", "1gbit"}, Words{"int8/two_sided"}, ""),
                                               {Words{"fast"}, Words{}, "not 'fast'"},
                                               {Words{}, Words{"int9/gather"}, "unknown codec 'int9'; "}}) {
    std::tie(o.bandwidth, o.codec) = std::tie(networks, names);
    const std::string said = message_of([&] { require_known_words(o); });
    CHECK((contains(said, wrong) && said.empty() == std::string(wrong).empty()));
  }
}
