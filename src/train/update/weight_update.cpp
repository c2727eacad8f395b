#include "train/update/weight_update.hpp"

#include "copy_bits.hpp"
#include "optimizer.hpp"
#include "replica/model_state.hpp"

namespace dat {

WeightAverage::WeightAverage(Model& model, AveragedOptimizer& optimizer, const std::string& statistics)
    : model_(model), optimizer_(optimizer), rebuilds_(statistics == "rebuild"), averages_(statistics == "ema") {
  if (rebuilds_ || averages_)
    statistics_ = model.backend.allocate_floats(2 * model.graph.statistics, "averaged weights");
}

void WeightAverage::follow(std::int64_t step) {
  optimizer_.take_up(step);
  rebuilt_before_ = rebuilt_;
  if (optimizer_.changed()) rebuilt_ = false;
  if (averages_) average_statistics();
}

void WeightAverage::average_statistics() {
  const std::int64_t count = model_.graph.statistics;
  optimizer_.average(model_.running_mean, statistics_, count);
  optimizer_.average(model_.running_variance, statistics_ + count, count);
}

void WeightAverage::exchange() {
  const auto swap = [&](float* a, float* b, std::int64_t count) {
    each(model_.backend.device(), count, kernels::Exchange{a, b});
  };
  swap(model_.parameters.values, optimizer_.average(), model_.parameters.size);
  if (const std::int64_t count = model_.graph.statistics; statistics_ != nullptr) {
    // Statistics that stand still are those of any weights: no pass makes them.
    const std::int64_t still = model_.graph.statistics_of(model_.frozen);
    copy_bits(model_.backend.device(), model_.running_mean, statistics_, still);
    copy_bits(model_.backend.device(), model_.running_variance, statistics_ + count, still);
    swap(model_.running_mean, statistics_, count);
    swap(model_.running_variance, statistics_ + count, count);
  }
  ++model_.parameters.version;
}

void WeightAverage::save(Checkpoint& checkpoint) const {
  if (statistics_ == nullptr || lacks_statistics()) return;
  std::vector<float> all = running_statistics(model_);
  if (has_begun()) model_.backend.copy_to_host(all.data(), statistics_, all.size() * sizeof(float));
  save_statistics(model_, kAverageGroup, all, checkpoint);
}

void WeightAverage::restore(const Checkpoint& checkpoint) {
  if (!averages_ || !has_begun()) return;
  // A run with other statistics (bn=) has none: they begin here.
  const std::vector<float> all = statistics_of_average(checkpoint, model_);
  model_.backend.copy_to_device(statistics_, all.data(), all.size() * sizeof(float));
}

void WeightAverage::share(Communicator& ranks) {
  if (!has_begun()) optimizer_.reset();
  if (!averages_) return;
  if (!has_begun()) average_statistics();
  share_floats(ranks, model_.backend, statistics_, statistics());
}

void WeightAverage::replicated(ReplicatedState& state) {
  if (averages_) state.device("averaged running statistics", statistics_, statistics());
}

namespace {

const char* const kAverageRule = "average";  ///< the rule of the averaged weights, in checkpoints that have any

[[nodiscard]] OptimizerOptions optimizer_of(const TrainOptions& options) {
  OptimizerOptions all = options;
  if (options.head_lr > 0) all.head_rate = options.head_lr / options.lr;
  return all;
}

}  // namespace

WeightUpdate::WeightUpdate(const TrainOptions& options, const Plan& plan, Model& model, BatchStatistics& statistics)
    : model_(model),
      rule_(options.average.last()),
      statistics_(statistics),
      schedule_(schedules().at(options.schedule)({options, plan.steps_per_epoch, options.max_steps})),
      optimizer_(optimizers().at(options.optimizer)(model.backend, model.parameters, optimizer_of(options))),
      momentum_(options.momentum),
      peak_momentum_(options.peak_momentum < 0 ? options.momentum : options.peak_momentum) {
  if (options.average == "none") return;
  auto averaged =
      std::make_unique<AveragedOptimizer>(model.backend, model.parameters, std::move(optimizer_),
                                          AverageOptions{.rule = rule_,
                                                         .decay = options.average_decay,
                                                         .from = options.average_from() * plan.steps_per_epoch,
                                                         .steps_per_epoch = plan.steps_per_epoch});
  average_ = std::make_unique<WeightAverage>(model, *averaged, options.average_bn);
  optimizer_ = std::move(averaged);
}

void WeightUpdate::apply(const ActiveSet& active, std::int64_t step, double lr_factor) {
  if (perturbation_ != nullptr) perturbation_->enter();
  optimizer_->set_momentum(momentum(step));
  optimizer_->step(active, lr(step) * lr_factor);
  if (perturbation_ != nullptr) perturbation_->leave();
  statistics_.update_model();
  if (average_) average_->follow(step);
}

void WeightUpdate::take_back() {
  optimizer_->take_back();
  statistics_.take_back();
  if (average_) average_->take_back();
}

std::int64_t WeightUpdate::state_size() const {
  return static_cast<std::int64_t>(optimizer_->state().size()) * model_.parameters.size +
         (average_ ? average_->statistics() : 0);
}

void WeightUpdate::save(Checkpoint& checkpoint) {
  save_network(model_, checkpoint);
  for (const Optimizer::State& state : optimizer_->state())
    save_segments(model_, "optim/" + state.name, state.data, checkpoint);
  if (average_) {
    average_->save(checkpoint);
    checkpoint.texts[kAverageRule] = rule_;
  }
  if (const std::vector<double> numbers = optimizer_->numbers(); !numbers.empty())
    checkpoint.doubles["optimizer"] = numbers;
  checkpoint.integers["batches_tracked"] = model_.batches_tracked;
}

void WeightUpdate::restore(const Checkpoint& checkpoint) {
  load_network(checkpoint, model_);
  std::vector<double> numbers = value_of(checkpoint.doubles, "optimizer");
  // An average by another rule is none: how many weights it is made of, the last number, means something else.
  const std::string rule = value_of(checkpoint.texts, kAverageRule);
  if (!rule.empty() && rule != rule_ && !numbers.empty()) numbers.pop_back();
  optimizer_->restore(numbers);
  for (const Optimizer::State& state : optimizer_->state())
    if (!average_ || average_->has_begun() || state.data != average_->weights())
      load_segments(checkpoint, "optim/" + state.name, model_, state.data);
  if (average_) average_->restore(checkpoint);
  model_.batches_tracked = integer_of(checkpoint, "batches_tracked");
}

void WeightUpdate::share(Communicator& ranks) {
  const auto floats = [&](float* data, std::int64_t count) { share_floats(ranks, model_.backend, data, count); };
  floats(model_.parameters.values, model_.parameters.size);
  floats(model_.running_mean, model_.graph.statistics);
  floats(model_.running_variance, model_.graph.statistics);
  std::vector<double> numbers = optimizer_->numbers();
  share_doubles(ranks, numbers);
  optimizer_->restore(numbers);
  if (average_) average_->share(ranks);
  for (const Optimizer::State& state : optimizer_->state()) floats(state.data, model_.parameters.size);
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
  if (average_) average_->replicated(state);
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
