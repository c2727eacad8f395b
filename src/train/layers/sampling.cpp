#include "train/layers/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dat/error.hpp"
#include "launch.hpp"
#include "train/layers/per_worker_masks.hpp"
#include "train/layers/shared_mask.hpp"

namespace dat {

LayerSampling::LayerSampling(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model)
    : ranks_(ranks),
      seed_(options.seed),
      model_(model),
      active_(ActiveSet::all(model.parameters.layers())),
      p_(active_.scale.size(), 1.0),
      warmup_steps_(plan.warmup_steps),
      period_(plan.draw_period),
      frozen_(model.parameters.segments[static_cast<std::size_t>(model.freezing.segments)].layer),
      frozen_steps_(plan.frozen_steps),
      name_(options.selector),
      options_{options, model.parameters.layers() - frozen_, {}, plan.steps},
      measured_(options.budget_unit == "seconds"),
      norms_(active_.scale.size(), std::numeric_limits<double>::quiet_NaN()) {
  if (options_.budget == 0) options_.budget = default_budget(options_.layers);
  if (options.budget_unit == "bytes")
    options_.costs =
        costs_of_mean_one({model.parameters.layer_sizes.begin() + frozen_, model.parameters.layer_sizes.end()});
  make_selector();
}

void LayerSampling::make_selector() {
  selector_ = behind_frozen(selectors().at(name_)(options_), frozen_, model_.parameters.layers(), frozen_steps_);
}

std::vector<double> LayerSampling::costs() const {
  std::vector<double> all = options_.costs.empty() ? std::vector<double>(chosen(), 1.0) : options_.costs;
  all.insert(all.begin(), static_cast<std::size_t>(frozen_), 0.0);
  return all;
}

void LayerSampling::share_costs(const std::function<std::vector<double>()>& measure) {
  if (!measured_) return;
  share_doubles(ranks_, options_.costs);
  if (options_.costs.empty()) {
    const std::vector<double> all = measure();
    options_.costs = costs_of_mean_one({all.begin() + frozen_, all.end()});
    share_doubles(ranks_, options_.costs);
  }
  make_selector();
  if (saved_.ranks > 0) take();
}

void LayerSampling::save_costs(Checkpoint& checkpoint) const {
  if (measured_ && !options_.costs.empty()) checkpoint.doubles["layer_costs"] = options_.costs;
}

bool LayerSampling::draw_due(std::int64_t step) const {
  return step >= warmup_steps_ && (step - warmup_steps_) % period_ == 0;
}

bool LayerSampling::begin(std::int64_t step) {
  step_ = step;
  learned_ = false;
  selector_->begin(step);
  // Without a draw, what no selector chooses is what there is: all layers in the warm-up, and those that stand still.
  const std::size_t settled = step < warmup_steps_ ? p_.size() : static_cast<std::size_t>(frozen_);
  for (std::size_t d = 0; d < settled; ++d) {
    p_[d] = d < static_cast<std::size_t>(frozen_) ? selector_->probabilities()[d] : 1;
    active_.scale[d] = static_cast<float>(p_[d]);
  }
  return draw_due(step);
}

bool LayerSampling::learns() const {
  // Once per draw, from the last gradients that it produced.
  return draw_due(step_ + 1) && step_ >= warmup_steps_;
}

void LayerSampling::learn(const double* mean) {
  if (!learns()) return;
  const double* const sums = squares(mean);
  const Parameters& p = model_.parameters;
  std::ranges::fill(norms_, 0.0);
  for (std::size_t k = 0; k < p.segments.size(); ++k)
    if (active_.active(p.segments[k].layer)) norms_[static_cast<std::size_t>(p.segments[k].layer)] += sums[k * kSums];
  for (double& norm : norms_) norm = std::sqrt(norm);
  selector_->learn(active_, norms_);
  learned_ = true;
}

void LayerSampling::restore(const Checkpoint& checkpoint) {
  saved_ = {.ranks = static_cast<std::size_t>(std::max<std::int64_t>(1, value_of(checkpoint.integers, "masks"))),
            .selector = doubles_of(checkpoint, "selector"),
            .p = doubles_of(checkpoint, "p"),
            .scale = doubles_of(checkpoint, "active_scale")};
  require(saved_.p.size() % saved_.ranks == 0 && saved_.p.size() / saved_.ranks == p_.size() &&
              saved_.scale.size() == saved_.p.size(),
          ExitCode::checkpoint, "the checkpoint has other layers than --network and --granularity say");
  if (const auto costs = checkpoint.doubles.find("layer_costs"); measured_ && costs != checkpoint.doubles.end()) {
    require(costs->second.size() == chosen(), ExitCode::checkpoint, "the checkpoint has the costs of ",
            costs->second.size(), " layers, not of ", chosen());
    const double all = std::accumulate(costs->second.begin(), costs->second.end(), 0.0);
    require(std::ranges::min(costs->second) > 0 && std::fabs(all / static_cast<double>(chosen()) - 1) < 1e-9,
            ExitCode::checkpoint, "the checkpoint has costs of layers that are not above 0 with the mean 1");
    options_.costs = costs->second;  // share_costs() makes a selector of them
  }
  take();
}

std::vector<double> LayerSampling::row(const std::vector<double>& all, int rank) const {
  const std::size_t count = all.size() / saved_.ranks;
  const double* const begin = all.data() + static_cast<std::size_t>(rank) % saved_.ranks * count;
  return {begin, begin + count};
}

void LayerSampling::take() {
  selector_->restore(row(saved_.selector, ranks_.rank()));
  p_ = row(saved_.p, ranks_.rank());
  std::ranges::copy(row(saved_.scale, ranks_.rank()), active_.scale.begin());
}

std::unique_ptr<LayerSampling> make_layer_sampling(Communicator& ranks, const TrainOptions& options, const Plan& plan,
                                                   Model& model) {
  if (options.mask == "per_worker") return std::make_unique<PerWorkerMasks>(ranks, options, plan, model);
  return std::make_unique<SharedMask>(ranks, options, plan, model);
}

}  // namespace dat
