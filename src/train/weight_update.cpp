#include "train/weight_update.hpp"

#include "replica/model_state.hpp"

namespace dat {

WeightUpdate::WeightUpdate(const TrainOptions& options, const Plan& plan, Model& model, BatchStatistics& statistics)
    : model_(model),
      statistics_(statistics),
      schedule_(schedules().at(options.schedule)({.lr = options.lr,
                                                  .steps_per_epoch = plan.steps_per_epoch,
                                                  .warmup_epochs = options.warmup_epochs,
                                                  .epochs = options.epochs,
                                                  .milestones = options.milestones,
                                                  .decay = options.lr_decay,
                                                  .total_steps = options.max_steps})),
      optimizer_(optimizers().at(options.optimizer)(model.backend, model.parameters,
                                                    {.momentum = options.momentum,
                                                     .beta1 = options.beta1,
                                                     .beta2 = options.beta2,
                                                     .epsilon = options.epsilon,
                                                     .bias_correction = options.bias_correction,
                                                     .weight_decay = options.weight_decay,
                                                     .nesterov = options.nesterov,
                                                     .trust_coefficient = options.trust_coefficient,
                                                     .clamp_low = options.clamp_low,
                                                     .clamp_high = options.clamp_high,
                                                     .importance = options.importance,
                                                     .clip_norm = options.clip_norm})) {}

void WeightUpdate::apply(const ActiveSet& active, std::int64_t step, double lr_factor) {
  optimizer_->step(active, lr(step) * lr_factor);
  statistics_.update_model();
}

void WeightUpdate::save(Checkpoint& checkpoint) {
  save_network(model_, checkpoint);
  for (const Optimizer::State& state : optimizer_->state())
    save_segments(model_, "optim/" + state.name, state.data, checkpoint);
  if (const std::vector<double> numbers = optimizer_->numbers(); !numbers.empty())
    checkpoint.doubles["optimizer"] = numbers;
  checkpoint.integers["batches_tracked"] = model_.batches_tracked;
}

void WeightUpdate::restore(const Checkpoint& checkpoint) {
  load_network(checkpoint, model_);
  for (const Optimizer::State& state : optimizer_->state())
    load_segments(checkpoint, "optim/" + state.name, model_, state.data);
  const auto numbers = checkpoint.doubles.find("optimizer");
  optimizer_->restore(numbers != checkpoint.doubles.end() ? numbers->second : std::vector<double>());
  model_.batches_tracked = integer_of(checkpoint, "batches_tracked");
}

void WeightUpdate::share(Communicator& ranks) {
  const auto floats = [&](float* data, std::int64_t count) { share_floats(ranks, model_.backend, data, count); };
  floats(model_.parameters.values, model_.parameters.size);
  for (const Optimizer::State& state : optimizer_->state()) floats(state.data, model_.parameters.size);
  std::vector<double> numbers = optimizer_->numbers();
  ranks.broadcast(numbers.data(), numbers.size() * sizeof(double));
  optimizer_->restore(numbers);
  floats(model_.running_mean, model_.graph.statistics);
  floats(model_.running_variance, model_.graph.statistics);
  ranks.broadcast(&model_.batches_tracked, sizeof model_.batches_tracked);
  ++model_.parameters.version;
}

void WeightUpdate::replicated(ReplicatedState& state) {
  const Parameters& p = model_.parameters;
  state.device("weights", p.values, p.size);
  for (const Optimizer::State& array : optimizer_->state())
    state.device("optimizer state " + array.name, array.data, p.size);
  std::vector<double> numbers = optimizer_->numbers();
  if (!numbers.empty()) state.host("step counts of the optimizer", numbers.data(), numbers.size() * sizeof(double));
  if (!statistics_.local()) {
    state.device("running means", model_.running_mean, model_.graph.statistics);
    state.device("running variances", model_.running_variance, model_.graph.statistics);
  }
  state.host("number of batches", &model_.batches_tracked, sizeof model_.batches_tracked);
  if (!state.writes()) return;
  optimizer_->restore(numbers);
  ++model_.parameters.version;
}

}  // namespace dat
