#include "train/layers/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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
      budget_(options.budget > 0 ? options.budget : default_budget(model.parameters.layers())),
      name_(options.selector),
      equal_({.layers = model.parameters.layers(),
              .budget = budget_,
              .p_min = options.p_min,
              .bandit_loss = options.bandit_loss,
              .bandit_rate = options.bandit_rate,
              .costs = {},
              .steps = plan.steps,
              .freeze_t0 = options.freeze_t0,
              .freeze_schedule = options.freeze_schedule,
              .freeze_lr = options.freeze_lr,
              .freeze_percentile = options.freeze_percentile}),
      measured_(options.budget_unit == "seconds"),
      norms_(active_.scale.size(), std::numeric_limits<double>::quiet_NaN()) {
  if (options.budget_unit == "bytes")
    costs_ = costs_of_mean_one({model.parameters.layer_sizes.begin(), model.parameters.layer_sizes.end()});
  make_selector();
}

void LayerSampling::make_selector() {
  SelectorOptions options = equal_;
  options.costs = costs_;
  selector_ = selectors().at(name_)(options);
}

std::vector<double> LayerSampling::costs() const {
  return costs_.empty() ? std::vector<double>(active_.scale.size(), 1.0) : costs_;
}

void LayerSampling::share_costs(const std::function<std::vector<double>()>& measure) {
  if (!measured_) return;
  std::int64_t known = costs_.empty() ? 0 : 1;
  ranks_.broadcast(&known, sizeof known);
  if (known == 0) costs_ = costs_of_mean_one(measure());
  costs_.resize(active_.scale.size());
  ranks_.broadcast(costs_.data(), costs_.size() * sizeof(double));
  make_selector();
  if (saved_.ranks > 0) take();
}

void LayerSampling::save_costs(Checkpoint& checkpoint) const {
  if (measured_ && !costs_.empty()) checkpoint.doubles["layer_costs"] = costs_;
}

bool LayerSampling::draw_due(std::int64_t step) const {
  return step >= warmup_steps_ && (step - warmup_steps_) % period_ == 0;
}

bool LayerSampling::begin(std::int64_t step) {
  step_ = step;
  learned_ = false;
  selector_->begin(step);
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
  std::fill(norms_.begin(), norms_.end(), 0.0);
  for (std::size_t k = 0; k < p.segments.size(); ++k)
    if (active_.active(p.segments[k].layer)) norms_[static_cast<std::size_t>(p.segments[k].layer)] += sums[k * kSums];
  for (double& norm : norms_) norm = std::sqrt(norm);
  selector_->learn(active_, norms_);
  learned_ = true;
}

void LayerSampling::restore(const Checkpoint& checkpoint) {
  const auto ranks = checkpoint.integers.find("masks");
  saved_ = {.ranks = ranks == checkpoint.integers.end()
                         ? 1
                         : static_cast<std::size_t>(std::max<std::int64_t>(1, ranks->second)),
            .selector = doubles_of(checkpoint, "selector"),
            .p = doubles_of(checkpoint, "p"),
            .scale = doubles_of(checkpoint, "active_scale")};
  require(saved_.p.size() == saved_.ranks * p_.size() && saved_.scale.size() == saved_.p.size(), ExitCode::checkpoint,
          "the checkpoint has other layers than --network and --granularity say");
  if (const auto costs = checkpoint.doubles.find("layer_costs"); measured_ && costs != checkpoint.doubles.end()) {
    require(costs->second.size() == active_.scale.size(), ExitCode::checkpoint, "the checkpoint has the costs of ",
            costs->second.size(), " layers, not of ", active_.scale.size());
    costs_ = costs->second;
    make_selector();
  }
  take();
}

void LayerSampling::take() {
  const auto mine = [&](const std::vector<double>& all) {
    const std::size_t count = all.size() / saved_.ranks, at = row(ranks_.rank()) * count;
    return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(at),
                               all.begin() + static_cast<std::ptrdiff_t>(at + count));
  };
  selector_->restore(mine(saved_.selector));
  p_ = mine(saved_.p);
  const std::vector<double> scale = mine(saved_.scale);
  std::copy(scale.begin(), scale.end(), active_.scale.begin());
}

std::unique_ptr<LayerSampling> make_layer_sampling(Communicator& ranks, const TrainOptions& options, const Plan& plan,
                                                   Model& model) {
  if (options.mask == "per_worker") return std::make_unique<PerWorkerMasks>(ranks, options, plan, model);
  return std::make_unique<SharedMask>(ranks, options, plan, model);
}

}  // namespace dat
