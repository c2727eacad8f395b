#include "forecast/forecast.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string_view>
#include <utility>

#include "dat/error.hpp"
#include "dat/number.hpp"
#include "reduce/transport/transport.hpp"

namespace dat {

namespace {

[[nodiscard]] bool shared_nodes(const Cluster& c) { return c.ranks_per_node > 1; }

/// A message to the next rank, all ranks at once: as long as the slowest of them.
[[nodiscard]] double to_neighbour(const Cluster& c, double bytes) {
  return std::max(c.ranks > c.ranks_per_node ? c.between.seconds(bytes) : 0.0,
                  shared_nodes(c) ? c.within.seconds(bytes) : 0.0);
}

/// Messages both ways between ranks at this distance. Between nodes, all ranks of a node send at once.
[[nodiscard]] double across(const Cluster& c, int distance, double bytes) {
  return distance < c.ranks_per_node ? c.within.seconds(bytes) : c.between.seconds(c.ranks_per_node * bytes);
}

[[nodiscard]] double tree(const Cluster& c, double bytes) {
  const auto inner = static_cast<int>(std::bit_floor(static_cast<unsigned>(c.ranks)));
  double seconds = inner < c.ranks ? 2 * to_neighbour(c, bytes) + bytes / c.reduction : 0;
  double part = bytes / 2;
  for (int distance = 1; distance < inner; distance *= 2, part /= 2)
    seconds += 2 * across(c, distance, part) + part / c.reduction;
  return seconds;
}

[[nodiscard]] Traffic traffic_of(const Calibration::Codec& codec, const Cluster& c) {
  return transports().at(codec.transport)().traffic(c.ranks);
}

/// Seconds of a message of `bytes` bytes of every rank, on the transport of its codec.
[[nodiscard]] double seconds_of(const Calibration::Codec& codec, const Cluster& c, double bytes) {
  const Traffic traffic = traffic_of(codec, c);
  double seconds = 0;
  if (traffic.summed) seconds += codec.rounds * seconds_of_gradients(c, bytes / codec.rounds);
  if (traffic.exchanged) seconds += seconds_of_exchange(c, bytes);
  if (traffic.gathered > 0) seconds += seconds_of_gather(c, bytes / traffic.gathered);
  return seconds;
}

}  // namespace

double seconds_of_sum(const Cluster& c, double bytes) {
  if (c.algorithm == SumAlgorithm::tree) return tree(c, bytes);
  const double part = bytes / c.ranks;
  return (c.ranks - 1) * (2 * to_neighbour(c, part) + part / c.reduction);
}

double seconds_of_gradients(const Cluster& c, double bytes) {
  if (c.ranks == 1 || !shared_nodes(c) || !c.window) return seconds_of_sum(c, bytes);
  Cluster nodes = c;
  nodes.ranks = (c.ranks + c.ranks_per_node - 1) / c.ranks_per_node;
  nodes.ranks_per_node = 1;
  return c.window->seconds(bytes) + seconds_of_sum(nodes, bytes);
}

double seconds_of_gather(const Cluster& c, double bytes) { return (c.ranks - 1) * to_neighbour(c, bytes); }

double seconds_of_exchange(const Cluster& c, double bytes) {
  const double part = bytes / c.ranks;
  const int near = std::min(c.ranks_per_node, c.ranks) - 1, far = c.ranks - 1 - near;
  return near * c.within.seconds(part) + far * c.between.seconds(c.ranks_per_node * part);
}

StepForecast forecast_step(const Calibration& calibration, const Cluster& cluster, const StepChoice& choice) {
  const Calibration::Codec& codec = calibration.codec(choice.codec);
  const std::size_t layers = calibration.layers.size();
  const auto p = [&](std::size_t d) { return choice.probabilities.empty() ? 1.0 : choice.probabilities[d]; };
  const bool coded = cluster.ranks > 1 || !codec.exact;

  // True for the last layer of each bucket, as the reducer lays them out.
  std::vector<bool> last(layers, false);
  double in_bucket = 0, all = 0;
  for (std::size_t d = 0; d < layers; ++d) {
    const double elements = p(d) * static_cast<double>(calibration.layers[d].elements);
    if (d > 0 && in_bucket + elements > static_cast<double>(choice.bucket_elements)) {
      last[d - 1] = true;
      in_bucket = 0;
    }
    in_bucket += elements;
    all += elements;
  }
  last[layers - 1] = true;

  StepForecast step{.data = calibration.data,
                    .attack = calibration.attack,
                    .forward = calibration.forward,
                    .select = calibration.select,
                    .update = calibration.update};
  const double pass = calibration.backward / calibration.backward_passes;
  double saved = 0, of_layers = 0;
  for (std::size_t d = 0; d < layers; ++d) {
    saved += (1 - p(d)) * calibration.layers[d].weight_gradient;
    of_layers += calibration.layers[d].backward;
  }
  step.backward = calibration.backward_passes * (pass - saved);

  // The last backward pass; what is before it does not matter, for no message leaves then.
  double now = 0, wire = 0, under_way = 0, elements = 0, bytes = 0;
  for (std::size_t d = 0; d < layers; ++d) {
    const Calibration::Layer& layer = calibration.layers[d];
    now += layer.backward - (1 - p(d)) * layer.weight_gradient;
    elements += p(d) * static_cast<double>(layer.elements);
    bytes += p(d) * static_cast<double>(codec.bytes[d]);
    if (!last[d]) continue;
    const double encode = coded ? codec.encode * elements : 0, message = seconds_of(codec, cluster, bytes);
    now += encode;
    step.encode += encode;
    wire = std::max(wire, now) + message;
    under_way += message;
    step.bytes += bytes;
    elements = bytes = 0;
  }
  const double end = now + std::max(0.0, pass - of_layers);
  step.exposed = choice.overlap ? std::max(0.0, wire - end) : under_way;
  step.hidden = under_way - step.exposed;
  if (calibration.attack_iterations > 0) {
    const double iterations = std::min(choice.stale_attack, calibration.attack_iterations);
    const double covered = std::min(step.exposed, iterations * calibration.attack / calibration.attack_iterations);
    step.exposed -= covered;
    step.hidden += covered;
  }
  step.exposed += seconds_of_sum(cluster, static_cast<double>(calibration.step_message));

  if (coded) {
    const Traffic traffic = traffic_of(codec, cluster);
    if (traffic.encoded_again > 0) step.encode += codec.encode * all / traffic.encoded_again;
    step.decode = traffic.decoded * codec.decode * all;
  }
  step.straggling = choice.jitter * (step.data + step.attack + step.forward + step.backward + step.encode) *
                    expected_maximum(cluster.ranks);
  return step;
}

std::vector<double> budget_in_layers(const Calibration& calibration, double budget) {
  const auto layers = static_cast<double>(calibration.layers.size());
  require(budget > 0 && budget <= layers, ExitCode::usage, "--budget ", budget, " is not above 0 and at most ", layers,
          ", the number of layers");
  return std::vector<double>(calibration.layers.size(), budget / layers);
}

std::vector<double> budget_in_bytes(const Calibration& calibration, double budget, double p_min) {
  const std::vector<std::int64_t>& bytes = calibration.codec("float32").bytes;
  const auto layers = static_cast<double>(bytes.size());
  const double mean = std::accumulate(bytes.begin(), bytes.end(), 0.0) / layers;
  constexpr double kRounding = 1e-12;
  require(budget >= p_min * layers * (1 - kRounding) && budget <= layers, ExitCode::usage, "--budget ", budget,
          " mean layers is not from ", p_min * layers, " (all with --p-min) to ", layers);
  std::vector<double> p(bytes.size());
  // The cost rises with c: its root by halving, down to the last bit.
  const auto cost = [&](double c) {
    double sum = 0;
    for (std::size_t d = 0; d < p.size(); ++d) {
      const double of_layer = static_cast<double>(bytes[d]) / mean;
      p[d] = of_layer > 0 ? std::clamp(c / std::sqrt(of_layer), p_min, 1.0) : 1.0;
      sum += of_layer * p[d];
    }
    return sum;
  };
  double low = 0, high = std::sqrt(static_cast<double>(*std::ranges::max_element(bytes)) / mean);
  for (double c = high / 2; c > low && c < high; c = (low + high) / 2) (cost(c) < budget ? low : high) = c;
  static_cast<void>(cost(high));
  return p;
}

double expected_maximum(int count) {
  if (count < 2) return 0;
  // The integral of x over the density n phi(x) Phi(x)^(n - 1), by the trapezoidal rule: smooth, and zero at both ends.
  constexpr int kPieces = 4000;
  constexpr double kEnd = 9, kWidth = 2 * kEnd / kPieces;
  double sum = 0;
  for (int k = 0; k <= kPieces; ++k) {
    const double x = -kEnd + k * kWidth;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    sum += x * density * std::pow(std::erfc(-x / std::numbers::sqrt2) / 2, count - 1);
  }
  return count * sum * kWidth;
}

Line fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double weight = 1 / (y[k] * y[k]);
    w += weight;
    wx += weight * x[k];
    wy += weight * y[k];
    wxx += weight * x[k] * x[k];
    wxy += weight * x[k] * y[k];
  }
  const double determinant = w * wxx - wx * wx;
  return {.intercept = (wxx * wy - wx * wxy) / determinant, .slope = (w * wxy - wx * wy) / determinant};
}

void explain_sums(const Line& sum, int ranks, Link& link, double& reduction) {
  const double others = ranks - 1.0, part = others / ranks;
  link.latency = std::max(link.latency, sum.intercept / (2 * others));
  const double rest = sum.slope - 2 * part / link.bandwidth;
  reduction = rest > 0 ? part / rest : std::numeric_limits<double>::infinity();
  if (rest < 0) link.bandwidth = 2 * part / sum.slope;
}

double bandwidth_from(const std::string& word) {
  constexpr double kPayload = 1448.0 / 1538;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"gbit", kPayload * 1e9 / 8}, {"mbit", kPayload * 1e6 / 8}, {"GB/s", 1e9}, {"MB/s", 1e6}};
  double number = 0;
  for (const auto& [name, bytes] : kUnits)
    if (word.ends_with(name) && read_fraction(word.substr(0, word.size() - name.size()), number) && number >= 1e-3 &&
        number <= 1e6)
      return number * bytes;
  fail(ExitCode::usage, "--bandwidth takes numbers with gbit, mbit, GB/s or MB/s, such as 10gbit, not '", word, "'");
}

}  // namespace dat
