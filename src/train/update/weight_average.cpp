#include "train/update/weight_average.hpp"

#include "optimizer.hpp"
#include "pointwise.hpp"
#include "replica/model_state.hpp"

namespace dat {

WeightAverage::WeightAverage(Model& model, AveragedOptimizer& optimizer, const std::string& statistics)
    : model_(model), optimizer_(optimizer), rebuilds_(statistics == "rebuild") {
  if (rebuilds_ || statistics == "ema")
    statistics_ = model.backend.allocate_floats(2 * model.graph.statistics, "averaged weights");
}

void WeightAverage::follow(std::int64_t step) {
  optimizer_.take_up(step);
  rebuilt_before_ = rebuilt_;
  if (optimizer_.changed()) rebuilt_ = false;
  if (statistics_ != nullptr && !rebuilds_) average_statistics();
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
    keep_still();
    swap(model_.running_mean, statistics_, count);
    swap(model_.running_variance, statistics_ + count, count);
  }
  ++model_.parameters.version;
}

/// Statistics that stand still are those of any weights: no pass makes them.
void WeightAverage::keep_still() {
  const std::int64_t count = model_.graph.statistics_of(model_.frozen);
  if (count == 0) return;
  const Device device = model_.backend.device();
  each(device, count, kernels::Scale{model_.running_mean, statistics_, 1.0F, false});
  each(device, count, kernels::Scale{model_.running_variance, statistics_ + model_.graph.statistics, 1.0F, false});
}

void WeightAverage::save(Checkpoint& checkpoint) const {
  if (statistics_ == nullptr || lacks_statistics()) return;
  std::vector<float> all = running_statistics(model_);
  if (has_begun()) model_.backend.copy_to_host(all.data(), statistics_, all.size() * sizeof(float));
  save_statistics(model_, kAverageGroup, all, checkpoint);
}

void WeightAverage::restore(const Checkpoint& checkpoint) {
  if (statistics_ == nullptr || rebuilds_ || !has_begun()) return;
  // A run with other statistics (bn=) has none: they begin here.
  const std::vector<float> all = has_average_statistics(checkpoint) ? load_statistics(checkpoint, kAverageGroup, model_)
                                                                    : running_statistics(model_);
  model_.backend.copy_to_device(statistics_, all.data(), all.size() * sizeof(float));
}

void WeightAverage::share(Communicator& ranks) {
  rebuilt_ = false;
  if (!has_begun()) optimizer_.reset();
  if (statistics_ == nullptr || rebuilds_) return;
  if (!has_begun()) average_statistics();
  share_floats(ranks, model_.backend, statistics_, statistics());
}

void WeightAverage::replicated(ReplicatedState& state) {
  if (statistics_ != nullptr && !rebuilds_) state.device("averaged running statistics", statistics_, statistics());
}

}  // namespace dat
