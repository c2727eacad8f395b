#include "catch.hpp"
#include "forecast/calibration.hpp"
#include "forecast/forecast.hpp"

using namespace dat;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[nodiscard]] Cluster flat(int ranks, double latency, double bandwidth, SumAlgorithm algorithm = SumAlgorithm::ring) {
  return {.ranks = ranks, .between = {.latency = latency, .bandwidth = bandwidth}, .algorithm = algorithm};
}

/// Three tensors of 1, 2 and 4 million elements; times whose sums can be seen.
[[nodiscard]] Calibration example() {
  Calibration c;
  c.batch = 8;
  c.data = 0.001;
  c.attack = 0.8;
  c.forward = 0.1;
  c.backward = 0.2;  // 0.03 below the last tensor
  c.select = 0.002;
  c.update = 0.003;
  c.attack_iterations = 8;
  c.layers = {{"a", 1000000, 0.08, 0.04}, {"b", 2000000, 0.05, 0.02}, {"c", 4000000, 0.04, 0.01}};
  c.codecs = {
      {.name = "float32", .exact = true, .encode = 1e-9, .decode = 2e-9, .bytes = {4000000, 8000000, 16000000}},
      {.name = "bytes", .transport = "gather", .encode = 3e-9, .decode = 1e-9, .bytes = {1000000, 2000000, 4000000}},
      {.name = "both", .transport = "two_sided", .encode = 3e-9, .decode = 1e-9, .bytes = {1000000, 2000000, 4000000}},
      {.name = "twice", .rounds = 2, .bytes = {1000, 2000, 4000}}};
  return c;
}

}  // namespace

TEST_CASE("Costs of sums, gathers and exchanges, by hand", "[forecast]") {
  // Latency 1, a byte a second, 12 bytes, 3 bytes added a second.
  Cluster c = flat(4, 1, 1);
  c.reduction = 3;
  CHECK((seconds_of_sum(c, 12) == Approx(3 * (2 * (1 + 3) + 1)) && seconds_of_gather(c, 12) == Approx(3 * (1 + 12))));
  CHECK(seconds_of_exchange(c, 12) == Approx(3 * (1 + 3)));
  c.algorithm = SumAlgorithm::tree;  // 6 bytes, then 3, there and back
  CHECK(seconds_of_sum(c, 12) == Approx(2 * (1 + 6) + 2 + 2 * (1 + 3) + 1));
  c.ranks = 6;  // two give all they have to a neighbour, and get all from it
  CHECK(seconds_of_sum(c, 12) == Approx(2 * (1 + 12) + 4 + 2 * (1 + 6) + 2 + 2 * (1 + 3) + 1));

  // Two ranks on a node: neighbours there are 10 times as near. A ring waits for the link between nodes; in a tree the
  // two share it.
  Cluster two = flat(4, 1, 1);
  two.ranks_per_node = 2;
  two.within = {.latency = 0.1, .bandwidth = 10};
  CHECK(seconds_of_sum(two, 12) == Approx(6 * (1 + 3)));
  CHECK(seconds_of_gather(two, 12) == Approx(3 * (1 + 12)));
  CHECK(seconds_of_exchange(two, 12) == Approx((0.1 + 0.3) + 2 * (1 + 2 * 3)));
  two.algorithm = SumAlgorithm::tree;
  CHECK(seconds_of_sum(two, 12) == Approx(2 * (0.1 + 0.6) + 2 * (1 + 2 * 3)));
  // Gradients in the memory of the nodes, then over the two of them; the second message of a step by MPI.
  two.window = {.latency = 0.5, .bandwidth = 24};
  CHECK(seconds_of_gradients(two, 12) == Approx((0.5 + 0.5) + 2 * (1 + 6)));
  CHECK(seconds_of_sum(two, 12) == Approx(2 * (0.1 + 0.6) + 2 * (1 + 2 * 3)));
  two.ranks = 2;  // one node
  CHECK(seconds_of_gradients(two, 12) == Approx(0.5 + 0.5));
  CHECK(seconds_of_sum(two, 12) == Approx(2 * (0.1 + 0.6)));
}

TEST_CASE("One rank sends nothing, and an infinite network costs nothing", "[forecast]") {
  const Calibration c = example();
  for (const SumAlgorithm algorithm : {SumAlgorithm::ring, SumAlgorithm::tree}) {
    const StepForecast alone = forecast_step(c, flat(1, 1, 1, algorithm), {});
    CHECK(alone.seconds() == Approx(c.compute()));
    CHECK((alone.exposed == 0 && alone.hidden == 0));
    CHECK((alone.encode == 0 && alone.decode == 0));  // its gradients are the result already
    const StepForecast free = forecast_step(c, flat(64, 0, kInfinity, algorithm), {});
    CHECK(free.exposed == 0);
    CHECK(free.seconds() == Approx(c.compute() + 7e6 * 3e-9));
  }
  // One rank with a codec that changes the gradients does what many do.
  CHECK(forecast_step(c, flat(1, 1, 1), {.codec = "bytes"}).seconds() == Approx(c.compute() + 7e6 * 4e-9));
}

TEST_CASE("What a step sends, encodes and decodes, by transport", "[forecast]") {
  const Calibration c = example();
  const double second = 6 * 0.01;  // the step's other message, of no bytes here
  const StepForecast sum = forecast_step(c, flat(4, 0.01, 1e9), {});
  CHECK((c.elements() == 7'000'000 && sum.bytes == 28e6));
  CHECK(sum.exposed == Approx(6 * (0.01 + 7e6 / 1e9) + second));
  CHECK((sum.encode == Approx(7e6 * 1e-9) && sum.decode == Approx(7e6 * 2e-9)));
  const StepForecast gather = forecast_step(c, flat(4, 0.01, 1e9), {.codec = "bytes"});
  CHECK(gather.bytes == 7e6);
  CHECK(gather.exposed == Approx(3 * (0.01 + 7e6 / 1e9) + second));
  CHECK((gather.encode == Approx(7e6 * 3e-9) && gather.decode == Approx(4 * 7e6 * 1e-9)));
  const StepForecast both = forecast_step(c, flat(4, 0.01, 1e9), {.codec = "both"});
  CHECK(both.exposed == Approx(2 * 3 * (0.01 + 7e6 / 4 / 1e9) + second));
  CHECK((both.encode == Approx(1.25 * 7e6 * 3e-9) && both.decode == Approx(2 * 7e6 * 1e-9)));
  Calibration cut = c;
  cut.codecs[2].transport = "butterfly";
  const StepForecast parts = forecast_step(cut, flat(4, 0.01, 1e9), {.codec = "both"});
  CHECK((parts.exposed == Approx(both.exposed) && parts.encode == Approx(7e6 * 3e-9)));
  CHECK(parts.decode == Approx(7e6 * 1e-9));
  const StepForecast twice = forecast_step(c, flat(4, 0.01, 1e9), {.codec = "twice"});
  CHECK(twice.exposed == Approx(12 * 0.01 + 6 * 7e3 / 4 / 1e9 + second));
  // With 8 ranks, gathered bytes are as many as a ring of floats moves: 7/4 n of both.
  const auto moved = [&](const char* codec) { return forecast_step(c, flat(8, 0, 1e9), {.codec = codec}).exposed; };
  CHECK(moved("bytes") == Approx(moved("float32")));
  CHECK(message_of([&] { (void)forecast_step(c, flat(2, 0, 1), {.codec = "none"}); }) ==
        "the calibration has no codec 'none'; it has float32, bytes, both, twice");
}

TEST_CASE("Buckets leave when their layers are done, one after the other", "[forecast]") {
  Calibration c = example();
  c.codecs[0].encode = c.codecs[0].decode = 0;
  // Gradients are ready after 80, 130 and 170 ms of the pass, which ends after 200. Two ranks, no latency: a message
  // takes as long as its bytes on the link.
  const auto step = [&](double bandwidth, std::int64_t bucket, int stale = 0) {
    return forecast_step(c, flat(2, 0, bandwidth), {.bucket_elements = bucket, .overlap = true, .stale_attack = stale});
  };
  // One bucket, 28 MB, from 170 on: 28 ms at 1 GB/s, which end before the pass does.
  CHECK((step(1e9, 7000000).exposed == Approx(0).margin(1e-15) && step(1e9, 7000000).hidden == Approx(0.028)));
  // 280 ms: 30 of them are hidden.
  CHECK((step(1e8, 7000000).exposed == Approx(0.250) && step(1e8, 7000000).hidden == Approx(0.030)));
  // Three buckets of 40, 80 and 160 ms: 80 to 120, 130 to 210, 210 to 370.
  CHECK((step(1e8, 1).exposed == Approx(0.170) && step(1e8, 1).hidden == Approx(0.110)));
  // Two buckets, a and b together: 130 to 250, then c to 410.
  CHECK(step(1e8, 3000000).exposed == Approx(0.210));
  // An iteration of the attack takes 100 ms: one covers 100 of 170, two all of it, and so do more.
  CHECK(step(1e8, 1, 1).exposed == Approx(0.070));
  CHECK(step(1e8, 1, 2).exposed == Approx(0).margin(1e-15));
  CHECK(step(1e8, 1, 100).hidden == Approx(0.280));
  // Encoding delays what comes after it: a's message leaves at 80 + 3, b's after 130 + 9, c's after 170 + 21; the pass
  // ends at 221; messages of 10, 20 and 40 ms.
  const auto coded = [&](double bandwidth) {
    return forecast_step(c, flat(2, 0, bandwidth), {.codec = "bytes", .bucket_elements = 1, .overlap = true});
  };
  CHECK(coded(1e8).encode == Approx(0.021));
  CHECK(coded(1e8).exposed == Approx(0.191 + 0.040 - 0.221));
  CHECK(coded(1e7).exposed == Approx(0.083 + 0.700 - 0.221));  // ten times as long: one after the other from a's on
  // A bucket of 4 million and one of 3: 80 to 160, 170 to 230.
  std::swap(c.layers[0].elements, c.layers[2].elements);
  std::swap(c.codecs[0].bytes[0], c.codecs[0].bytes[2]);
  CHECK(step(2e8, 3000000).exposed == Approx(0.030));
}

TEST_CASE("Layers that are drawn with a probability count by it", "[forecast]") {
  Calibration c = example();
  c.backward_passes = 2;
  c.backward = 0.4;
  const std::vector<double> half = {1, 0.5, 0.25};
  const StepForecast step = forecast_step(c, flat(2, 0, 1e8), {.probabilities = half});
  CHECK(step.bytes == Approx(4e6 + 4e6 + 4e6));
  CHECK(step.backward == Approx(0.4 - 2 * (0.5 * 0.02 + 0.75 * 0.01)));
  CHECK(step.encode == Approx(3e6 * 1e-9));
}

TEST_CASE("A budget in bytes spends it, where it costs the least variance", "[forecast]") {
  const Calibration c = example();
  const double mean = 28e6 / 3, p_min = 0.1;
  for (const double budget : {0.3, 0.5, 1.0, 2.0, 2.9, 3.0}) {
    const std::vector<double> p = budget_in_bytes(c, budget, p_min);
    double spent = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      const auto bytes = static_cast<double>(c.codecs[0].bytes[d]);
      spent += p[d] * bytes / mean;
      CHECK(p[d] >= p_min);
      CHECK(p[d] <= 1);
      // p sqrt(bytes) is the same wherever neither bound holds.
      for (std::size_t e = 0; e < 3; ++e)
        if (p[d] > p_min * (1 + 1e-9) && p[d] < 1 && p[e] > p_min * (1 + 1e-9) && p[e] < 1)
          CHECK(p[d] * std::sqrt(bytes) == Approx(p[e] * std::sqrt(static_cast<double>(c.codecs[0].bytes[e]))));
    }
    CHECK(spent == Approx(budget).epsilon(1e-9));
  }
  CHECK(message_of([&] { (void)budget_in_bytes(c, 0.2, p_min); }).find("--budget 0.2") == 0);
  CHECK(message_of([&] { (void)budget_in_bytes(c, 3.1, p_min); }).find("--budget 3.1") == 0);
  CHECK(message_of([&] { (void)budget_in_layers(c, 4); }).find("--budget 4") == 0);
  CHECK(budget_in_layers(c, 1.5) == std::vector<double>(3, 0.5));
  Calibration free = c;  // layers without bytes, which cost nothing
  free.codecs[0].bytes = {0, 0, 0};
  CHECK(budget_in_bytes(free, 1, p_min) == std::vector<double>(3, 1));
}

TEST_CASE("The slowest of several ranks", "[forecast]") {
  // Means of order statistics: 1/sqrt(pi), 3/(2 sqrt(pi)); 1.8675 and 2.5076 are tabulated for 20 and 100.
  CHECK(expected_maximum(1) == 0);
  CHECK(expected_maximum(2) == Approx(0.564189583547756).epsilon(1e-9));
  CHECK(expected_maximum(3) == Approx(0.846284375321634).epsilon(1e-9));
  CHECK(expected_maximum(20) == Approx(1.8675).margin(5e-5));
  CHECK(expected_maximum(100) == Approx(2.5076).margin(5e-5));
  const Calibration c = example();
  const StepForecast calm = forecast_step(c, flat(20, 0, 1e9), {});
  const StepForecast step = forecast_step(c, flat(20, 0, 1e9), {.jitter = 0.1});
  CHECK(step.seconds() - calm.seconds() == Approx(0.1 * 1.8675 * (1.101 + calm.encode)).epsilon(1e-4));
  CHECK(forecast_step(c, flat(1, 0, 1e9), {.jitter = 0.1}).straggling == 0);
}

TEST_CASE("A line through times, and what sums say beside a link", "[forecast]") {
  const std::vector<double> x = {4, 1000, 50000, 1e6, 3e7};
  std::vector<double> y;
  for (const double one : x) y.push_back(2e-5 + one / 1e9);
  CHECK(fit_line(x, y).intercept == Approx(2e-5).epsilon(1e-9));
  CHECK(1 / fit_line(x, y).slope == Approx(1e9).epsilon(1e-9));
  y[4] *= 1.1;  // a large message counts as much as a small one: 10 % of it moves the latency by less than 1 %
  CHECK(fit_line(x, y).intercept == Approx(2e-5).epsilon(0.01));

  // Four ranks, 1.5 n bytes on the link, 0.75 n added.
  Link link{.latency = 1e-5, .bandwidth = 1e9};
  double reduction = 0;
  explain_sums({.intercept = 6 * 3e-5, .slope = 1.5 / 1e9 + 0.75 / 4e9}, 4, link, reduction);
  CHECK((link.latency == Approx(3e-5) && link.bandwidth == 1e9));
  CHECK(reduction == Approx(4e9));
  // Faster than the link: then the link is.
  explain_sums({.intercept = 0, .slope = 1.5 / 2e9}, 4, link, reduction);
  CHECK((link.latency == Approx(3e-5) && link.bandwidth == Approx(2e9)));
  CHECK(reduction == kInfinity);
}

TEST_CASE("Networks in words", "[forecast]") {
  CHECK(bandwidth_from("1gbit") == Approx(117.7e6).epsilon(1e-3));
  CHECK((bandwidth_from("100mbit") == Approx(11.77e6).epsilon(1e-3) && bandwidth_from("117MB/s") == 117e6));
  CHECK(bandwidth_from("1.17GB/s") == Approx(1.17e9));
  for (const char* word : {"", "gbit", "10", "10 gbit", "10Gbit", "-1gbit", "0gbit", "nangbit", "infgbit", "1e9gbit",
                           "1gbits", "measured"})
    CHECK(message_of([&] { (void)bandwidth_from(word); }).find("--bandwidth takes") == 0);
}

TEST_CASE("A calibration survives its file", "[forecast]") {
  Calibration c = example();
  c.about = {{"network", "resnet18"}};
  c.ranks = 3;
  c.step_message = 76800;
  const auto same = [](const Calibration& a) {
    const std::string text = to_json(a).dump(2);
    return to_json(calibration_from(text, "text")).dump(2) == text;
  };
  CHECK(same(c));
  c.between = {.latency = 1.0 / 3e5, .bandwidth = 1.17e9 / 3};
  c.within = {.latency = 1e-6, .bandwidth = 1e10};
  c.window = {.latency = 2e-6, .bandwidth = 7e9};
  c.reduction = 3.3e9;
  CHECK(same(c));
  CHECK(c.window_of(6)->bandwidth == Approx(7e9 / 2));  // of twice as many ranks
}

TEST_CASE("Numbers of a calibration file have limits, which belong to them", "[forecast]") {
  using Json = nlohmann::ordered_json;
  Calibration c = example();
  for (Calibration::Layer& layer : c.layers) layer.backward = layer.weight_gradient = 0;
  c.between = c.within = c.window = Link{.latency = 1e-5, .bandwidth = 1e9};
  c.reduction = 1e9;
  const Json good = to_json(c);
  const auto taken = [&](const std::string& place, const Json& value) {
    Json json = good;
    REQUIRE(json.contains(Json::json_pointer(place)));
    json[Json::json_pointer(place)] = value;
    return message_of([&] { (void)calibration_from(json.dump(), "FILE"); }, ExitCode::data).empty();
  };
  const std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> whole = {
      {"/ranks", 1, 1 << 20},           {"/batch", 1, 1 << 24},
      {"/image_size", 1, 1 << 12},      {"/attack_iterations", 0, 1 << 20},
      {"/backward_passes", 1, 1 << 20}, {"/step_message_bytes", 0, std::int64_t{1} << 40},
      {"/format_version", 2, 2},        {"/layers/2/elements", 1, 109951162},
      {"/codecs/1/rounds", 1, 16},      {"/codecs/1/bytes/2", 0, std::int64_t{1} << 40}};
  for (const auto& [place, low, high] : whole) {
    INFO(place);
    CHECK((taken(place, low) && taken(place, high) && !taken(place, low - 1) && !taken(place, high + 1)));
  }
  std::vector<std::tuple<std::string, double, double>> real = {
      {"/codecs/1/encode", 0, 1},           {"/codecs/1/decode", 0, 1},
      {"/network/between/latency", 0, 100}, {"/network/within/bandwidth", 1, 1e15},
      {"/network/window/latency", 0, 100},  {"/network/reduction", 1, 1e18}};
  for (const std::string part : {"data", "attack", "forward", "backward", "select", "update"})
    real.emplace_back("/seconds/" + part, 0, 1e6);
  for (const auto& [place, low, high] : real) {
    INFO(place);
    CHECK((taken(place, low) && taken(place, high)));
    CHECK((!taken(place, std::nextafter(low, -1)) && !taken(place, std::nextafter(high, 2 * high))));
  }
}

TEST_CASE("A calibration file is not trusted", "[forecast]") {
  const nlohmann::ordered_json good = to_json([] {
    Calibration c = example();
    c.between = {.latency = 1e-5, .bandwidth = 1e9};
    return c;
  }());
  using Json = nlohmann::ordered_json;
  const auto refusal = [&](const std::function<void(Json&)>& damage) {
    Json json = good;
    damage(json);
    const std::string text = json.dump();
    return message_of([&] { (void)calibration_from(text, "FILE"); }, ExitCode::data);
  };
  CHECK(refusal([](Json&) {}).empty());
  const auto check = [&](const std::string& part, const std::function<void(Json&)>& damage) {
    const std::string message = refusal(damage);
    INFO(part << ": " << message);
    CHECK(message.find("FILE") == 0);
    CHECK((contains(message, part) && contains(message, "make the file anew")));
  };
  check("filetype", [](Json& j) { j["filetype"] = "dat_hpc forecast"; });
  check("about must be an object", [](Json& j) { j["about"] = 1; });
  check("lacks 'seconds'", [](Json& j) { j.erase("seconds"); });
  check("seconds: attack must be a number", [](Json& j) { j["seconds"]["attack"] = "1"; });
  check("seconds: attack must be a number from", [](Json& j) { j["seconds"]["attack"] = -1; });
  check("must not all be 0", [](Json& j) {
    for (auto& one : j["seconds"]) one = 0;
    for (auto& layer : j["layers"]) layer["backward"] = layer["weight_gradient"] = 0;
  });
  check("ranks must be a whole number", [](Json& j) { j["ranks"] = 1.5; });
  check("batch must be a whole number", [](Json& j) { j["batch"] = std::uint64_t{18446744073709551615U}; });
  check("layers must be a list", [](Json& j) { j["layers"] = Json::object(); });
  check("layers must have 1 to", [](Json& j) { j["layers"] = Json::array(); });
  check("layers[1]: name", [](Json& j) { j["layers"][1]["name"] = "\x1b[2J"; });
  check("layers[1]: name stands there twice", [](Json& j) { j["layers"][1]["name"] = "a"; });
  check("longer than its part", [](Json& j) { j["layers"][1]["weight_gradient"] = 0.06; });
  check("longer than the backward pass", [](Json& j) { j["backward_passes"] = 2; });
  check("codecs[0]: bytes must have 3 to 3", [](Json& j) { j["codecs"][0]["bytes"] = {1, 2}; });
  check("codecs[1]: transport must be sum", [](Json& j) { j["codecs"][1]["transport"] = "mail"; });
  check("codecs[1]: exact", [](Json& j) { j["codecs"][1]["exact"] = 0; });
  check("codecs[1]: name stands there twice", [](Json& j) { j["codecs"][1]["name"] = "float32"; });
  check("codecs must have 1 to 64 entries, not 0", [](Json& j) { j["codecs"] = Json::array(); });
  check("codecs must have 1 to 64 entries, not 65", [](Json& j) { j["codecs"] = Json(65, j["codecs"][0]); });
  for (const std::string& name : std::vector<std::string>{"", "a b", "\x7f", std::string(201, 'a')})
    check("layers[1]: name must be 1 to 200", [&](Json& j) { j["layers"][1]["name"] = name; });
  for (const std::string& name :
       std::vector<std::string>{"!", "~", std::string(200, 'a'), "float32"})  // a codec's name is not taken
    CHECK(refusal([&](Json& j) { j["layers"][1]["name"] = name; }).empty());
  // Layers may take all of the pass, but for the rounding of their sum.
  CHECK(refusal([](Json& j) { j["seconds"]["backward"] = 0.17; }).empty());
  check("longer than the backward pass", [](Json& j) { j["seconds"]["backward"] = 0.1699; });
  check("must have float32", [](Json& j) { j["codecs"][0]["name"] = "float64"; });
  check("network: between: latency", [](Json& j) { j["network"]["between"]["latency"] = nullptr; });
  check("network must be an object", [](Json& j) { j["network"] = 5; });
  // Text that is none: cut off anywhere, nested deeply, or empty.
  const std::string text = good.dump();
  for (std::size_t length = 0; length < text.size(); length += 97)
    CHECK(contains(message_of([&] { (void)calibration_from(text.substr(0, length), "FILE"); }, ExitCode::data),
                   "FILE is not JSON, or cut off"));
  const std::string deep(100000, '[');
  CHECK(contains(message_of([&] { (void)calibration_from(deep, "FILE"); }, ExitCode::data), "is not JSON, or cut off"));
  for (const char* path : {"/no/such/file", "/"})
    CHECK(message_of([&] { (void)read_calibration(path); }, ExitCode::data).starts_with("cannot read the calibration"));
  // 8 MB are read, and one byte more is too many.
  const TemporaryFolder folder;
  for (const std::size_t bytes : {std::size_t{8} << 20, (std::size_t{8} << 20) + 1}) {
    write_bytes(folder / "file", text + std::string(bytes - text.size(), ' '));
    const std::string message = message_of([&] { (void)read_calibration(folder / "file"); }, ExitCode::data);
    CHECK((bytes == 8 << 20 ? message.empty() : contains(message, "it has more than 8 MB")));
  }
}
