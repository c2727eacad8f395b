// The verb forecast: what a step will take with other ranks, networks, codecs and budgets, as a table for a person.

#include "dat/file.hpp"
#include "dat/network.hpp"
#include "dat/options/attack.hpp"
#include "dat/provenance.hpp"
#include "dat/reducer.hpp"
#include "forecast/forecast_table.hpp"
#include "measure/calibrate.hpp"
#include "options/machine.hpp"
#include "printed.hpp"
#include "replica/device_notices.hpp"
#include "verbs/parsers.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_calibration(TableOf<ForecastOptions>& table) {
  using O = ForecastOptions;
  table.group("Calibration");
  table.add("--calibration", &O::calibration,
            "calibration.json that an earlier call has left in its --out; none: measured now, as follows", kPath);
  table.add("--network", &O::network, "architecture; images are drawn, in 10 classes", one_network());
  table.add("--width", &O::width, kAboutWidth, kAutoWidth);
  table.add("--train-size", &O::train_size,
            "height = width of the images: a step of each size is a forecast of its own", {.low = 8, .high = 4096});
  table.add("--batch", &O::batch, "images per rank and step", kBatch);
  table.add("--attack", &O::attack, "how training images are perturbed", one_attack());
  table.add("--attack-steps", &O::attack_steps, "gradient steps of " + listing(attacks().readers("attack-steps")),
            kSteps);
  table.add("--lambda", &O::lambda,
            "weight of the loss on clean images; auto: " + own_values(attacks(), "lambda") + " (DAT), else 0",
            kAutoWeight);
  add_attack_precision(table);
  add_precision(table);
  add_device(table);
  table.add("--seconds", &O::seconds, "to spend after planning; each figure is measured at least a few times",
            kSomeSeconds);
}

void add_clusters(TableOf<ForecastOptions>& table) {
  using O = ForecastOptions;
  table.group("Forecast");
  table.add("--ranks", &O::ranks, "numbers of ranks, each with its own batch",
            {.label = "N,...", .low = 1, .high = 1 << 20, .commas = true});
  table.add("--ranks-per-node", &O::ranks_per_node, "that share a node's link", {.low = 1, .high = 1 << 20});
  table.add("--bandwidth", &O::bandwidth,
            "networks, e.g. 10gbit (line rate), 1.2GB/s (what arrives), measured; none: 1, 10, 25 and 100gbit, and "
            "measured where it was",
            {.label = "RATE,...", .commas = true});
  table.add("--latency", &O::latency, "of a message in microseconds, one or one for each; none: as measured, or 30",
            {.label = "NUMBER,...", .low = 0, .high = 1e7, .commas = true});
  table.add("--codec", &O::codec, "compared with float32; none: all",
            {.label = "NAME,...", .commas = true, .known = [] { return codecs().names(); }});
  table.add("--budget", &O::budget, "of JointSpar, compared with all layers; none: 40/54 of them",
            {.label = "NUMBER,...", .low = 0, .above = true, .commas = true});
  table.add("--budget-unit", &O::budget_unit, "a budget counts layers, or bytes in units of their mean",
            one_of({"layers", "bytes"}));
  table.add("--p-min", &O::p_min, "lowest probability of a layer, of budgets in bytes", kShare);
  table.add("--algorithm", &O::algorithm, "of sums over the ranks", one_of({"ring", "tree"}));
  table.add("--overlap", &O::overlap, "send gradients while the backward pass still runs");
  table.add("--bucket", &O::bucket, "most gradients in one message; auto: 2^19 with --overlap, else 2^20", kAutoBucket);
  table.add("--stale-attack", &O::stale_attack, "iterations of the next attack that run while the sum is under way",
            kCount);
  table.add("--generators", &O::generators, "ranks that only attack; auto: as many as pay best", kAutoCount);
  table.add("--micro-batch", &O::micro_batch, "images that a generator is given at once; auto: the batch",
            {.low = 1, .high = kBatch.high, .automatic = 0});
  table.add("--staleness", &O::staleness, "updates that the weights of generators may lag behind",
            {.low = 0, .high = kMostVersions});
  table.add("--generator-weights", &O::generator_weights, "how weights go to generators", one_of({"f32", "bf16"}));
  table.add("--generator-speed", &O::generator_speed, "of a generator, where 1 is that of a rank of the calibration",
            kAbove);
  table.add("--jitter", &O::jitter, "standard deviation of a rank's computing time, as a part of it",
            {.low = 0, .high = 1});
  table.add("--out", &O::out, "folder for calibration.json, forecast.json and a picture; none: the table is all",
            kFolder);
}

void add_options(TableOf<ForecastOptions>& table) {
  add_calibration(table);
  add_clusters(table);
}

int measure_and_forecast(Communicator& world, const ForecastOptions& o, int argc, char** argv) {
  const StepOptions step_options{.network = o.network,
                                 .width = o.width,
                                 .batch = o.batch,
                                 .size = o.train_size,
                                 .attack = o.attack,
                                 .attack_steps = o.attack_steps,
                                 .lambda = o.lambda,
                                 .overlap = o.overlap,
                                 .bucket = o.bucket,
                                 .device = o.device,
                                 .threads = choose_threads(o.threads, world.node_size()),
                                 .math = o.math,
                                 .attack_precision = o.attack_precision,
                                 .precision = o.precision};
  std::unique_ptr<TrainingStep> step;
  together(world, [&] {
    if (world.root()) make_folder(o.out);
    require_known_words(o);
    step = std::make_unique<TrainingStep>(world, step_options);
  });
  for (const std::string& notice : device_notices(world, step->backend(), o.device)) say(notice);
  const std::vector<std::string> hosts = world.gather(host_name());
  static_cast<void>(step->check());
  Calibration calibration = calibrate(world, *step, o.seconds);
  return print_of_root(world, [&] {
    calibration.about["provenance"] =
        nlohmann::ordered_json::parse(provenance_json(hosts, argc, argv, step->backend().description()));
    write_calibration(o, calibration);
    return forecast_table(o, calibration);
  });
}

/// Step time against ranks, from a calibration that is measured (**collective**) or read.
int run_forecast(const ForecastOptions& o, int argc, char** argv) {
  if (o.calibration.empty())
    return with_ranks([&](Communicator& world) { return measure_and_forecast(world, o, argc, argv); });
  return print_result([&] {
    const Calibration calibration = read_calibration(o.calibration);
    make_folder(o.out);
    return forecast_table(o, calibration);
  });
}

}  // namespace

std::optional<ForecastOptions> parse_forecast(CommandLine& line) {
  auto read = read_options<ForecastOptions>(
      line, "Step time against ranks, network, codec and budget, from a calibration of a minute: what pays.",
      add_options);
  if (!read) return {};
  ForecastOptions& o = *read;
  require_apart(files_in(o.out, {"forecast.json"}), {o.calibration});
  settle_precision(o);
  if (o.width == 0) o.width = default_width(o.network);
  if (o.lambda < 0) o.lambda = clean_weight_of(o.attack);
  if (o.bucket == 0) o.bucket = default_bucket(o.overlap);
  require(o.latency.size() <= 1 || o.latency.size() == o.bandwidth.size(), ExitCode::usage,
          "--latency takes one number, or one for each --bandwidth, not ", o.latency.size());
  require(!o.ranks.empty(), ExitCode::usage, "--ranks names no number");
  return o;
}

Verb forecast_verb() {
  return make_verb("forecast", "step time against ranks, network, codec, budget: what pays", parse_forecast,
                   run_forecast, Launch::together);
}

}  // namespace dat
