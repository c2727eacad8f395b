#include "train/layer_sampling.hpp"

#include <cmath>
#include <limits>

#include "dat/error.hpp"
#include "gradients.hpp"

namespace dat {

LayerSampling::LayerSampling(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model)
    : ranks_(ranks),
      seed_(options.seed),
      warmup_steps_(plan.warmup_steps),
      period_(plan.draw_period),
      model_(model),
      budget_(options.budget > 0 ? options.budget : model.parameters.layers() * 40.0 / 54.0),
      selector_(selectors().at(options.selector)({.layers = model.parameters.layers(),
                                                  .budget = budget_,
                                                  .p_min = options.p_min,
                                                  .bandit_loss = options.bandit_loss,
                                                  .bandit_rate = options.bandit_rate})),
      active_(ActiveSet::all(model.parameters.layers())),
      repeated_(active_),
      p_(active_.scale.size(), 1.0),
      norms_(active_.scale.size(), std::numeric_limits<double>::quiet_NaN()),
      chunks_(model.backend, model.parameters) {
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count * kSums) * sizeof(double); };
  const std::int64_t segments = std::ssize(model.parameters.segments);
  partial_ = static_cast<double*>(model.backend.allocate(bytes(chunks_.largest()), "gradient norms"));
  sums_ = static_cast<double*>(model.backend.allocate(bytes(segments), "gradient norms"));
  host_sums_ = static_cast<double*>(model.backend.allocate_pinned(bytes(segments), "gradient norms"));
}

bool LayerSampling::draw_due(std::int64_t step) const {
  return step >= warmup_steps_ && (step - warmup_steps_) % period_ == 0;
}

bool LayerSampling::learns() const {
  // Once per draw, from the last gradients that it produced.
  return ranks_.root() && draw_due(step_ + 1) && step_ >= warmup_steps_;
}

const ActiveSet& LayerSampling::draw(std::int64_t step) {
  step_ = step;
  wrong_ = learned_ = false;
  if (!draw_due(step)) return active_;
  const auto number = static_cast<std::uint64_t>(step);
  if (ranks_.root()) {
    p_ = selector_->probabilities();
    draw_layers(seed_, number, p_, active_);
  }
  ranks_.broadcast(p_.data(), p_.size() * sizeof(double));
  ranks_.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
  if (ranks_.root()) return active_;
  // The others repeat the draw. The step's second message brings what they find to all.
  wrong_ = !(probability_of_any(p_) > 0);
  if (wrong_) return active_;
  draw_layers(seed_, number, p_, repeated_);
  wrong_ = repeated_.scale != active_.scale;
  return active_;
}

void LayerSampling::require_agreement() const {
  require(wrong_ranks_ == 0, ExitCode::integrity, "in step ", step_ + 1, ", ", wrong_ranks_, " of the ", ranks_.size(),
          " ranks draw other layers than rank 0 from its probabilities; the weights are those of the step "
          "before, and the last checkpoint is good: start all ranks with the same options, and suspect a node");
}

void LayerSampling::fetch(Backend::Ticket& ticket) {
  if (!learns()) return;
  Backend& backend = model_.backend;
  sum(backend.device(), chunks_.select(active_), kernels::SquaredNorm{model_.parameters.gradients}, partial_, sums_);
  ticket = backend.fetch(host_sums_, sums_, model_.parameters.segments.size() * kSums * sizeof(double));
}

void LayerSampling::learn() {
  if (!learns()) return;
  const Parameters& p = model_.parameters;
  std::fill(norms_.begin(), norms_.end(), 0.0);
  for (std::size_t k = 0; k < p.segments.size(); ++k)
    norms_[static_cast<std::size_t>(p.segments[k].layer)] += host_sums_[k * kSums];
  for (double& norm : norms_) norm = std::sqrt(norm);
  selector_->learn(active_, norms_);
  learned_ = true;
}

void LayerSampling::save(Checkpoint& checkpoint) {
  checkpoint.doubles["selector"] = selector_->state();
  checkpoint.doubles["p"] = p_;
  checkpoint.doubles["active_scale"] = {active_.scale.begin(), active_.scale.end()};
}

void LayerSampling::restore(const Checkpoint& checkpoint) {
  selector_->restore(doubles_of(checkpoint, "selector"));
  const std::vector<double>&p = doubles_of(checkpoint, "p"), &scale = doubles_of(checkpoint, "active_scale");
  require(p.size() == p_.size() && scale.size() == p_.size(), ExitCode::checkpoint,
          "the checkpoint has other layers than --network and --granularity say");
  p_ = p;
  std::copy(scale.begin(), scale.end(), active_.scale.begin());
}

void LayerSampling::share(Communicator& ranks) {
  ranks.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
  ranks.broadcast(p_.data(), p_.size() * sizeof(double));
}

void LayerSampling::digest(Digest& digest) const {
  digest.add(p_.data(), p_.size() * sizeof(double));
  digest.add(active_.scale.data(), active_.scale.size() * sizeof(float));
}

}  // namespace dat
