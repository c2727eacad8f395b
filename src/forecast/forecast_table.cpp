#include "forecast/forecast_table.hpp"

#include <fmt/printf.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "dat/codec.hpp"
#include "dat/file.hpp"
#include "dat/options/jointspar.hpp"
#include "dat/report.hpp"
#include "forecast/forecast.hpp"
#include "forecast/roles.hpp"
#include "printed.hpp"

namespace dat {

using nlohmann::ordered_json;

namespace {

constexpr double kPays = 1.02;            ///< a gain that is worth an option
constexpr double kUsualLatency = 30e-6;   ///< seconds, of a network that nobody has measured
constexpr Link kUsualWithin{1e-6, 10e9};  ///< shared memory that nobody has measured
constexpr const char* kMeasured = "measured";

struct Network {
  std::string name;
  Link between, within;
};

/// Setting that is compared. The first one is float32 with all layers.
struct Candidate {
  std::string name;
  StepChoice choice;
};

struct Row {
  int ranks = 1;
  double alone = 0;                   ///< seconds of a step of float32 on one rank
  double ring = 0, tree = 0;          ///< seconds of a sum of all gradients at once
  std::vector<StepForecast> steps{};  ///< [candidates]
  std::size_t best = 0;
  /// Best forecast with ranks that only attack, and its candidate; empty for one rank.
  std::optional<RoleForecast> roles{};
  std::size_t roles_best = 0;
  [[nodiscard]] double roles_gain() const { return steps[best].seconds() / roles->seconds(); }
  [[nodiscard]] double gain(std::size_t k) const { return steps[0].seconds() / steps[k].seconds(); }
};

[[nodiscard]] std::string formatted(const char* format, auto... values) { return fmt::sprintf(format, values...); }

[[nodiscard]] std::vector<Network> networks_of(const ForecastOptions& o, const Calibration& c) {
  std::vector<std::string> words = o.bandwidth;
  const bool measured = c.between || c.within;
  if (words.empty()) {
    words = {"1gbit", "10gbit", "25gbit", "100gbit"};
    if (measured) words.insert(words.begin(), kMeasured);
  }
  std::vector<Network> networks;
  for (const std::string& word : words) {
    Network network{.name = word, .between = {}, .within = c.within.value_or(kUsualWithin)};
    if (word == kMeasured) {
      require(measured, ExitCode::usage, "--bandwidth ", kMeasured, ": this calibration was made by one rank, which ",
              "has measured no network; start two or more, on two nodes");
      network.between = c.between ? *c.between : *c.within;
    } else {
      network.between = {.latency = c.between ? c.between->latency : kUsualLatency, .bandwidth = bandwidth_from(word)};
      if (!o.latency.empty()) network.between.latency = 1e-6 * o.latency[o.latency.size() > 1 ? networks.size() : 0];
    }
    networks.push_back(network);
  }
  return networks;
}

[[nodiscard]] std::vector<Candidate> candidates_of(const ForecastOptions& o, const Calibration& c) {
  const StepChoice plain{
      .bucket_elements = o.bucket, .overlap = o.overlap, .stale_attack = o.stale_attack, .jitter = o.jitter};
  std::vector<Candidate> all = {{"float32", plain}};
  std::vector<std::string> names = o.codec;
  if (names.empty())
    for (const Calibration::Codec& codec : c.codecs) names.push_back(codec.name);
  for (const std::string& name : names) {
    if (name == "float32") continue;
    all.push_back({name, plain});
    all.back().choice.codec = c.codec(name).name;
  }
  std::vector<double> budgets = o.budget;
  const auto layers = static_cast<double>(c.layers.size());
  if (budgets.empty() && layers > 1) budgets = {default_budget(layers)};
  for (const double budget : budgets) {
    all.push_back({formatted("budget %g of %zu%s", std::round(100 * budget) / 100, c.layers.size(),
                             o.budget_unit == "bytes" ? " in bytes" : ""),
                   plain});
    all.back().choice.probabilities =
        o.budget_unit == "bytes" ? budget_in_bytes(c, budget, o.p_min) : budget_in_layers(c, budget);
  }
  return all;
}

[[nodiscard]] Cluster cluster_of(const ForecastOptions& o, const Calibration& c, const Network& network, int ranks) {
  return {.ranks = ranks,
          .ranks_per_node = o.ranks_per_node,
          .between = network.between,
          .within = network.within,
          .window = c.window_of(std::min(ranks, o.ranks_per_node)),
          .reduction = c.reduction,
          .algorithm = o.algorithm == "tree" ? SumAlgorithm::tree : SumAlgorithm::ring};
}

/// Forecasts the row with generators, with as many images in a step as without.
void roles(const ForecastOptions& o, const Calibration& c, const Cluster& cluster,
           const std::vector<Candidate>& candidates, Row& row) {
  if (std::max(o.generators, 1) >= cluster.ranks) return;
  RoleChoice choice{.generators = o.generators,
                    .staleness = o.staleness,
                    .speed = o.generator_speed,
                    .images = std::int64_t{cluster.ranks} * c.batch,
                    .micro_batch = o.micro_batch > 0 ? o.micro_batch : c.batch,
                    .weight_bytes = o.generator_weights == "bf16" ? 2 : 4};
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    const RoleForecast one = o.generators > 0 ? forecast_roles(c, cluster, candidates[k].choice, choice)
                                              : best_roles(c, cluster, candidates[k].choice, choice, 1);
    if (row.roles && one.seconds() >= row.roles->seconds()) continue;
    row.roles = one;
    row.roles_best = k;
  }
}

[[nodiscard]] Row row_of(const ForecastOptions& o, const Calibration& c, const Network& network,
                         const std::vector<Candidate>& candidates, int ranks) {
  Cluster cluster = cluster_of(o, c, network, ranks);
  Row row{.ranks = ranks, .alone = forecast_step(c, cluster_of(o, c, network, 1), candidates[0].choice).seconds()};
  for (const Candidate& candidate : candidates) {
    row.steps.push_back(forecast_step(c, cluster, candidate.choice));
    if (row.steps.back().seconds() < row.steps[row.best].seconds()) row.best = row.steps.size() - 1;
  }
  roles(o, c, cluster, candidates, row);
  const double bytes = 4.0 * static_cast<double>(c.elements());
  cluster.algorithm = SumAlgorithm::ring;
  row.ring = seconds_of_sum(cluster, bytes);
  cluster.algorithm = SumAlgorithm::tree;
  row.tree = seconds_of_sum(cluster, bytes);
  return row;
}

/// "int8 2.1x at 2 ranks to 3.5x at 1024"; a line for each candidate that pays anywhere.
[[nodiscard]] std::string what_pays(const std::vector<Candidate>& candidates, const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t k = 1; k < candidates.size(); ++k) {
    const Row *least = nullptr, *most = nullptr;
    for (const Row& row : rows) {
      if (row.gain(k) < kPays) continue;
      if (least == nullptr || row.gain(k) < least->gain(k)) least = &row;
      if (most == nullptr || row.gain(k) > most->gain(k)) most = &row;
    }
    if (least == nullptr) continue;
    text += "  " + candidates[k].name +
            " pays: " + formatted("%.2fx at %d rank%s", least->gain(k), least->ranks, least->ranks > 1 ? "s" : "");
    if (most != least) text += formatted(" to %.2fx at %d", most->gain(k), most->ranks);
    text += "\n";
  }
  if (!text.empty()) return text;
  double share = 0;
  for (const Row& row : rows) share = std::max(share, row.steps[0].exposed / row.steps[0].seconds());
  return formatted("  nothing pays: at most %.1f %% of a step is communication that nothing covers\n", 100 * share);
}

/// "generators (--staleness 1) pay: 1.05x at 8 ranks, 6 of them generators, to 1.41x at 64, 40 of them"; beside the
/// best of all candidates without generators.
[[nodiscard]] std::string what_generators_pay(const ForecastOptions& o, const std::vector<Candidate>& candidates,
                                              const std::vector<Row>& rows) {
  const Row *least = nullptr, *most = nullptr;
  for (const Row& row : rows) {
    if (!row.roles) continue;
    if (most == nullptr || row.roles_gain() > most->roles_gain()) most = &row;
    if (row.roles_gain() >= kPays && (least == nullptr || row.roles_gain() < least->roles_gain())) least = &row;
  }
  if (most == nullptr) return "";
  const std::string who = formatted("  generators, --staleness %d, ", o.staleness);
  const auto point = [&](const Row& row) {
    return formatted("%.2fx at %d ranks, %d of them generators (%s; the step waits for %s)", row.roles_gain(),
                     row.ranks, row.roles->generators, candidates[row.roles_best].name.c_str(), row.roles->bound());
  };
  if (least == nullptr) return who + "pay nowhere: at most " + point(*most) + "\n";
  return who + "pay: " + point(*least) + (most != least ? " to " + point(*most) : "") + "\n";
}

[[nodiscard]] ordered_json to_json(const RoleForecast& roles, const std::string& candidate, double gain) {
  return {{"generators", roles.generators}, {"name", candidate},      {"training", roles.training},
          {"attacking", roles.attacking},   {"link", roles.link},     {"round", roles.round},
          {"step", roles.seconds()},        {"bound", roles.bound()}, {"gain", gain}};
}

[[nodiscard]] ordered_json to_json(const Candidate& candidate, const StepForecast& step, double gain) {
  ordered_json json{{"name", candidate.name}, {"codec", candidate.choice.codec}};
  json["seconds"] = {
      {"data", step.data},     {"attack", step.attack},   {"forward", step.forward},       {"backward", step.backward},
      {"encode", step.encode}, {"exposed", step.exposed}, {"straggling", step.straggling}, {"decode", step.decode},
      {"select", step.select}, {"update", step.update}};
  json["hidden"] = step.hidden;
  json["message_bytes"] = step.bytes;
  json["step"] = step.seconds();
  json["gain"] = gain;
  return json;
}

[[nodiscard]] std::string header(const Calibration& c) {
  constexpr std::size_t kLongest = 80;  // the file may say anything here
  const auto word = [&](const char* key) {
    const auto found = c.about.find(key);
    if (found == c.about.end()) return std::string("?");
    std::string text = (found->is_string() ? found->get<std::string>() : found->dump()).substr(0, kLongest);
    std::ranges::replace_if(
        text, [](unsigned char letter) { return letter < 0x20 || letter > 0x7e; }, '?');
    return text;
  };
  std::ostringstream text;
  text << word("network") << ", width " << word("width") << ", batch " << c.batch << " a rank, attack "
       << word("attack") << " (" << c.attack_iterations << " gradients), " << word("device") << ", measured by "
       << c.ranks << (c.ranks == 1 ? " rank\n" : " ranks\n")
       << formatted(
              "computing %.2f ms: data %.2f, attack %.2f, forward %.2f, backward %.2f, select %.2f, update %.2f\n",
              1e3 * c.compute(), 1e3 * c.data, 1e3 * c.attack, 1e3 * c.forward, 1e3 * c.backward, 1e3 * c.select,
              1e3 * c.update)
       << formatted("gradients %.1f MB in %zu tensors\n", 4e-6 * static_cast<double>(c.elements()), c.layers.size());
  if (c.window)
    text << formatted("sums in the memory of a node %.1f us and %.2f GB/s\n", 1e6 * c.window->latency,
                      1e-9 * c.window->bandwidth);
  for (const Calibration::Codec& codec : c.codecs) {
    double bytes = 0;
    for (const std::int64_t one : codec.bytes) bytes += static_cast<double>(one);
    text << formatted("codec %-18s%8.2f MB, encode %.2f ms, decode %.2f ms\n", codec.name.c_str(), 1e-6 * bytes,
                      1e3 * codec.encode * static_cast<double>(c.elements()),
                      1e3 * codec.decode * static_cast<double>(c.elements()));
  }
  return text.str();
}

/// A picture for each quantity, a line for each network. Returns their paths; fewer without gnuplot, with a message on
/// standard error.
[[nodiscard]] std::vector<std::string> draw(const ForecastOptions& o, const std::vector<Candidate>& candidates,
                                            const std::vector<Network>& networks,
                                            const std::vector<std::vector<Row>>& rows) {
  const std::string model = " (a model: " + o.algorithm + (o.overlap ? ", overlapped)" : ", not overlapped)");
  const auto chart = [&](const std::string& title, const std::string& unit, double from) {
    LineChart all{.name = "dat_hpc forecast",
                  .title = title + model,
                  .x_label = "ranks",
                  .y_label = unit,
                  .x = {o.ranks.begin(), o.ranks.end()},
                  .from = from};
    for (const Network& network : networks) all.lines.push_back(network.name);
    return all;
  };
  std::vector<std::pair<std::string, LineChart>> pictures = {
      {"forecast-step", chart("a step of float32 with all layers", "seconds of a step", 0)},
      {"forecast-efficiency",
       chart("efficiency of float32 with all layers", "speed of a rank, against one alone (%)", 0)},
      {"forecast-gain", chart("what the best codec or budget gains", "times as fast as float32 with all layers", 1)}};
  for (std::size_t k = 0; k < o.ranks.size(); ++k)
    for (std::size_t n = 0; n < networks.size(); ++n) {
      const Row& row = rows[n][k];
      pictures[0].second.values.push_back(row.steps[0].seconds());
      pictures[1].second.values.push_back(100 * row.alone / row.steps[0].seconds());
      pictures[2].second.values.push_back(row.gain(row.best));
      // Name of the best candidate, at the line's end.
      if (k + 1 == o.ranks.size() && row.gain(row.best) >= kPays)
        pictures[2].second.lines[n] += ": " + candidates[row.best].name;
    }
  std::vector<std::string> paths;
  try {
    for (const auto& [file, lines] : pictures) paths.push_back(draw_lines(o.out, file, lines));
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    say("no picture: " + std::string(error.what()));
  }
  return paths;
}

}  // namespace

void require_known_words(const ForecastOptions& o) {
  for (const std::string& word : o.bandwidth)
    if (word != kMeasured) static_cast<void>(bandwidth_from(word));
  // A codec, or one with a transport: int8/two_sided.
  for (const std::string& name : o.codec) static_cast<void>(codecs().at(name.substr(0, name.find('/'))));
}

void write_calibration(const ForecastOptions& o, const Calibration& c) {
  if (!o.out.empty()) write_text_atomically(o.out + "/calibration.json", to_json(c).dump(2) + "\n");
}

std::string forecast_table(const ForecastOptions& o, const Calibration& c) {
  const std::vector<Network> networks = networks_of(o, c);
  const std::vector<Candidate> candidates = candidates_of(o, c);
  ordered_json json{{"filetype", "dat_hpc forecast"},
                    {"format_version", 1},
                    {"note", "a model; only the calibration was measured"},
                    {"calibration", to_json(c)},
                    {"ranks_per_node", o.ranks_per_node},
                    {"algorithm", o.algorithm},
                    {"overlap", o.overlap},
                    {"bucket", o.bucket},
                    {"stale_attack", o.stale_attack},
                    {"micro_batch", o.micro_batch},
                    {"staleness", o.staleness},
                    {"generator_weights", o.generator_weights},
                    {"generator_speed", o.generator_speed},
                    {"jitter", o.jitter}};
  for (const Candidate& candidate : candidates)
    json["choices"].push_back({{"name", candidate.name},
                               {"codec", candidate.choice.codec},
                               {"probabilities", candidate.choice.probabilities}});

  std::ostringstream text;
  text << header(c) << "\nA model, nothing measured from here on: each rank with its own batch, " << o.ranks_per_node
       << (o.ranks_per_node == 1 ? " rank" : " ranks") << " a node, sums by " << o.algorithm << ", "
       << (o.overlap ? "overlapped with the backward pass" : "not overlapped");
  if (o.stale_attack > 0) text << ", " << o.stale_attack << " stale iterations of the attack";
  if (o.jitter > 0) text << ", jitter " << o.jitter;
  text << ".\n";
  std::vector<std::vector<Row>> rows;
  for (const Network& network : networks) {
    text << "\n"
         << formatted("%s: %.1f us, %.1f MB/s", network.name.c_str(), 1e6 * network.between.latency,
                      1e-6 * network.between.bandwidth);
    if (o.ranks_per_node > 1)
      text << formatted("; inside a node %.1f us, %.1f MB/s", 1e6 * network.within.latency,
                        1e-6 * network.within.bandwidth);
    text << "\n"
         << formatted("%7s%12s%12s%12s%12s%12s%12s  %-26s%12s%8s\n", "ranks", "ring, ms", "tree, ms", "exposed, ms",
                      "step, ms", "efficiency", "images/s", "best", "step, ms", "gain");
    ordered_json of_network{
        {"name", network.name},
        {"between", {{"latency", network.between.latency}, {"bandwidth", network.between.bandwidth}}},
        {"within", {{"latency", network.within.latency}, {"bandwidth", network.within.bandwidth}}}};
    std::vector<Row>& of = rows.emplace_back();
    for (const int ranks : o.ranks) {
      const Row& row = of.emplace_back(row_of(o, c, network, candidates, ranks));
      const StepForecast& plain = row.steps[0];
      text << formatted("%7d%12.3f%12.3f%12.3f%12.3f%11.1f%%%12.1f  %-26s%12.3f%7.2fx\n", ranks, 1e3 * row.ring,
                        1e3 * row.tree, 1e3 * plain.exposed, 1e3 * plain.seconds(), 100 * row.alone / plain.seconds(),
                        1.0 * ranks * c.batch / plain.seconds(),
                        row.gain(row.best) < kPays ? "nothing else pays" : candidates[row.best].name.c_str(),
                        1e3 * row.steps[row.best].seconds(), row.gain(row.best));
      ordered_json of_row{{"ranks", ranks},
                          {"ring", row.ring},
                          {"tree", row.tree},
                          {"efficiency", row.alone / plain.seconds()},
                          {"best", candidates[row.best].name}};
      for (std::size_t k = 0; k < candidates.size(); ++k)
        of_row["choices"].push_back(to_json(candidates[k], row.steps[k], row.gain(k)));
      if (row.roles) of_row["roles"] = to_json(*row.roles, candidates[row.roles_best].name, row.roles_gain());
      of_network["rows"].push_back(of_row);
    }
    text << what_pays(candidates, of) << what_generators_pay(o, candidates, of);
    json["networks"].push_back(of_network);
  }
  if (o.out.empty()) return text.str();
  write_text_atomically(o.out + "/forecast.json", json.dump(2) + "\n");
  text << "\n" << o.out << "/forecast.json\n";
  for (const std::string& picture : draw(o, candidates, networks, rows)) text << picture << "\n";
  return text.str();
}

}  // namespace dat
