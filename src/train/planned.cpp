#include "train/planned.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "dat/aggregator.hpp"
#include "train/attackers/attackers.hpp"
#include "train/generators/generator.hpp"
#include "train/plan/role.hpp"
#include "train/protocol/ban_protocol.hpp"
#include "train/watch/loss_scale.hpp"

namespace dat {

TrainOptions as_one(const TrainOptions& options, int ranks) {
  TrainOptions one = options;
  one.faults = TrainOptions{}.faults;  // one rank cannot have as many as `ranks`
  const bool ordered = sums_are_ordered(options);
  if (ordered && options.total_batch == 0) {
    if (one.micro_batch == 0) one.micro_batch = options.batch;
    one.total_batch = batch_of(options, ranks);
    one.batch = 0;
  } else if (!ordered && options.total_batch != 0) {
    one.batch = batch_of(options, ranks);
    one.total_batch = 0;
    if (one.micro_batch == 0) one.micro_batch = one.batch;
  }
  return one;
}

std::map<std::string, std::size_t> memory_of(Trainer& trainer, const TrainOptions& options, int ranks) {
  std::map<std::string, std::size_t> all;
  for (const Backend::Allocation& allocation : trainer.replica().backend().allocations())
    all[allocation.purpose] += allocation.bytes;
  const Reducer& reducer = trainer.reducer();
  all["messages of " + std::to_string(ranks) + " ranks"] =
      static_cast<std::size_t>(std::max<std::int64_t>(0, reducer.memory(ranks) - reducer.memory(1)));
  if (options.byzantine && ranks > 1)
    all["protocol that bans"] = static_cast<std::size_t>(BanProtocol::memory(trainer.model(), ranks));
  return all;
}

std::string precision_text(const TrainOptions& options) {
  const std::string scale =
      fmt::format("; gradients times a loss scale, {} at first, {} at most", LossScale::kFirst, LossScale::kMost);
  return "activations of training passes in " + options.precision + (options.precision == "f16" ? scale : "");
}

std::string frozen_text(const Trainer& trainer, const TrainOptions& options, const Plan& plan) {
  if (!options.freezes()) return "";
  const Model& model = trainer.model();
  const std::vector<double>& p = trainer.layers().selector().probabilities();
  const auto trained = [&](int segment) {
    return segment >= model.freezing.segments
               ? p[static_cast<std::size_t>(model.parameters.segments[static_cast<std::size_t>(segment)].layer)] /
                     probability_of_any(p)
               : 0.0;
  };
  std::int64_t parameters = 0;
  for (int k = model.freezing.segments; k < std::ssize(model.parameters.segments); ++k)
    parameters += model.parameters.segments[static_cast<std::size_t>(k)].file_size();
  double gradients = 0;
  for (const Node& node : model.graph.nodes)
    if (node.op == Op::convolution) gradients += trained(node.weight);
  gradients *= static_cast<double>(trainer.method().loss->passes().size()) * plan.micro_batches;
  return "trained          " + std::to_string(parameters) + " parameters, those after " +
         (options.frozen() == "all-but-head" ? "all but the last layer" : options.frozen()) +
         (options.frozen_epochs() > 0 ? "; all after " + std::to_string(options.frozen_epochs()) + " epochs" : "") +
         "; " + fmt::format("{:g}", gradients) + " weight gradients of convolutions per step\n";
}

double warm_start_bytes(const TrainOptions& options, const Plan& plan, const Dataset& images) {
  if (options.warm_start == 0) return 0;
  const std::int64_t of_a_rank = (images.size() + plan.ranks - 1) / plan.ranks;
  return static_cast<double>(images.info().image_bytes()) * static_cast<double>(of_a_rank);
}

void require_ranks(const TrainOptions& options, const Plan& plan, int launched) {
  const int ranks = trainers_of(launched, options);
  require_fitting(attackers_of(options), launched);
  static_cast<void>(faults_of(options.aggregator, options.faults, ranks));
  require_validators(options, ranks);
  require_work(options, plan);
}

}  // namespace dat
