#include "run/settle_generators.hpp"

#include <fmt/printf.h>

#include <algorithm>

#include "communicate/together.hpp"
#include "dat/selector.hpp"
#include "forecast/roles.hpp"
#include "train/examples/old_weights.hpp"
#include "train/exchange/step_exchange.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/role.hpp"
#include "train/plan/splits.hpp"
#include "train/plan/step_method.hpp"

namespace dat {

namespace {

/// Name of the codec in the calibration: with its transport, where that is not the codec's first.
[[nodiscard]] std::string codec_of(const Calibration& calibration, const TrainOptions& options) {
  const std::string whole = options.codec + "/" + options.codec_transport;
  const bool named = std::ranges::any_of(calibration.codecs, [&](const auto& one) { return one.name == whole; });
  return named ? whole : options.codec;
}

/// Error(usage): a calibration says that it is of something else.
void require_of(const Calibration& calibration, const char* option, const nlohmann::ordered_json& here) {
  std::string key = option;
  std::ranges::replace(key, '-', '_');
  const auto there = calibration.about.find(key);
  require(there == calibration.about.end() || *there == here, ExitCode::usage, "the calibration has --", option, " ",
          there == calibration.about.end() ? "" : there->dump().substr(0, 40), ", this run ", here.dump(),
          "; a forecast needs one of this run's network and arithmetic");
}

/// Turns what the calibration has measured into what steps of this run take: of its attack, and of its loss's passes.
void count_as(const TrainOptions& o, Calibration& calibration) {
  constexpr int kAnyClasses = 10;
  calibration.attack *=
      attack_of(o, kAnyClasses)->gradients_of_run() / std::max(1.0, 1.0 * calibration.attack_iterations);
  // Weights that are perturbed take every pass twice; a loss of two predictions, one more way forward.
  const auto loss = loss_of(o, false);
  const int times = o.awp_gamma > 0 ? 2 : 1, passes = times * static_cast<int>(loss->passes().size());
  const int again = loss->looks_at() == Loss::Others::all ? passes - times : 0;
  calibration.forward *= 1.0 * (passes + again) / calibration.backward_passes;
  calibration.backward *= 1.0 * passes / calibration.backward_passes;
  calibration.backward_passes = passes;
}

[[nodiscard]] Cluster cluster_of(const Calibration& calibration, int ranks, int on_node, const std::string& node_sums) {
  const bool several = ranks > on_node;
  require(several ? calibration.between.has_value() : calibration.within.has_value(), ExitCode::usage,
          "the calibration has not measured messages between ranks of ", several ? "several nodes" : "a node",
          "; a forecast needs one that two or more ranks have made there");
  const Link within = calibration.within ? *calibration.within : *calibration.between;
  return {.ranks = ranks,
          .ranks_per_node = on_node,
          .between = calibration.between.value_or(within),
          .within = within,
          .window = node_sums == "auto" || node_sums == "window" ? calibration.window_of(std::min(ranks, on_node))
                                                                 : std::nullopt,
          .reduction = calibration.reduction};
}

/// Mean number of the calibration's layers that a step has; none: all of them, or not known.
[[nodiscard]] std::optional<double> budget_of(const TrainOptions& o, const Calibration& calibration) {
  const auto layers = static_cast<double>(calibration.layers.size());
  if (!selectors().reads(o.selector, "budget")) return {};
  if (o.budget == 0) return default_budget(layers);
  return o.granularity == "tensor" ? std::optional(std::min(o.budget, layers)) : std::nullopt;
}

/// What forecasts of a run's steps are made from.
struct Basis {
  Calibration calibration;
  Cluster cluster;
  StepChoice choice;
  RoleChoice roles;
};

[[nodiscard]] Basis basis_of(const TrainOptions& o, int ranks, int on_node) {
  Calibration calibration = read_calibration(o.calibration);
  require_of(calibration, "network", o.network);
  require_of(calibration, "width", o.width);
  // A CPU takes tf32, the default, as f32, and its calibration says so.
  const auto device = calibration.about.find("device");
  const bool of_cpu = device != calibration.about.end() && device->dump().starts_with("\"cpu");
  const bool as_f32 = of_cpu && o.math == "tf32";
  require_of(calibration, "math", as_f32 ? "f32" : o.math);
  require_of(calibration, "attack-precision", o.attack_precision);
  require_of(calibration, "precision", o.precision);
  count_as(o, calibration);
  StepChoice choice{.codec = codec_of(calibration, o), .bucket_elements = bucket_of(o), .overlap = o.overlap};
  if (const std::optional<double> budget = budget_of(o, calibration))
    choice.probabilities = o.budget_unit == "bytes" ? budget_in_bytes(calibration, *budget, o.p_min)
                                                    : budget_in_layers(calibration, *budget);
  const RoleChoice roles{.generators = std::max(0, o.generators),
                         .staleness = o.staleness,
                         .refresh = newer_between_iterations(o),
                         .of_each = o.total_batch == 0,
                         .images = std::max(o.total_batch.last(), o.batch.last()),
                         .micro_batch = o.micro_batch != 0 ? o.micro_batch : std::max(1, o.batch.last()),
                         .weight_bytes = o.generator_weights == "bf16" ? 2 : 4};
  const Cluster cluster = ranks == 1 ? Cluster{} : cluster_of(calibration, ranks, on_node, o.node_sums);
  return {std::move(calibration), cluster, std::move(choice), roles};
}

}  // namespace

std::optional<double> forecast_of_run(const TrainOptions& whole, const Dataset& train, int ranks, int on_node) {
  if (read_calibration(whole.calibration).image_size != train.info().size || whole.train_size.changes()) return {};
  const int trainers = trainers_of(ranks, whole);
  double seconds = 0;
  for (const int epoch : beginnings_of_parts(whole)) {
    const TrainOptions part = part_of(whole, epoch);
    const Plan plan(part, mix_of(part, train, trainers), trainers);
    const Basis basis = basis_of(part, ranks, on_node);
    seconds += static_cast<double>(plan.end - part.part_begin * plan.steps_per_epoch) *
               forecast_roles(basis.calibration, basis.cluster, basis.choice, basis.roles).seconds();
  }
  return seconds;
}

std::string settle_generators(TrainOptions& o, int ranks, int on_node) {
  if (o.calibration.empty()) return "";
  const TrainOptions asked = o;
  o.calibration.clear();
  if (asked.generators >= 0) return "";
  o.generators = 0;
  if (ranks == 1) return "--generators auto: none, for one rank trains";
  const Basis basis = basis_of(asked, ranks, on_node);
  const RoleForecast none = forecast_roles(basis.calibration, basis.cluster, basis.choice, basis.roles);
  const RoleForecast best = best_roles(basis.calibration, basis.cluster, basis.choice, basis.roles, 0);
  o.generators = best.generators;
  return fmt::sprintf("--generators auto: %d of %d ranks, by a forecast: %.1f images/s, %.1f with none",
                      best.generators, ranks, best.images_per_second(), none.images_per_second());
}

std::string settle_generators(Communicator& world, TrainOptions& options) {
  std::string told;
  together(world, [&] {
    if (world.root()) told = settle_generators(options, world.size(), world.node_size());
  });
  world.broadcast(&options.generators, sizeof options.generators);
  options.calibration.clear();
  return told;
}

}  // namespace dat
