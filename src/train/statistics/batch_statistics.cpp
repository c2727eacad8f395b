#include "train/statistics/batch_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pointwise.hpp"
#include "replica/model_state.hpp"

namespace dat {

int passes_in(const std::vector<int>& entering) {
  return entering.empty() ? 0 : 1 + *std::ranges::max_element(entering);
}

BatchStatistics::BatchStatistics(Communicator& ranks, Model& model, std::vector<int> entering,
                                 const SummationTree* order, bool local)
    : ranks_(ranks),
      model_(model),
      entering_(std::move(entering)),
      local_(local),
      units_(order != nullptr ? order->leaves_of(ranks.rank()) : 1),
      means_(order != nullptr ? 1 : ranks.size()),
      count_(2 * model.graph.statistics * passes_in(entering_)) {
  device_ = model.backend.allocate_floats(units_ * count_, "batch statistics");
  host_ = model.backend.allocate_pinned_array<float>(units_ * count_, "results");
}

void BatchStatistics::add(const TrainingProgram& program, int pass, const BatchPlace& place) {
  const std::int64_t count = 2 * model_.graph.statistics;
  each(model_.backend.device(), count,
       kernels::Scale{program.statistics(), device_ + count_ * place.unit + count * pass, place.share, !place.first});
}

void BatchStatistics::fetch(Backend::Ticket& ticket) {
  ticket = model_.backend.fetch(host_, device_, static_cast<std::size_t>(units_ * count_) * sizeof(float));
}

bool BatchStatistics::own_finite() const {
  return std::all_of(host_, host_ + units_ * count_, [](float value) { return std::isfinite(value); });
}

void BatchStatistics::write(double* to, int unit) {
  if (!local_) std::copy_n(host_ + count_ * unit, count_, to);
}

void BatchStatistics::read(const double* from) {
  if (local_) return;
  for (std::int64_t i = 0; i < count_; ++i) host_[i] = static_cast<float>(from[i] / means_);
}

void BatchStatistics::update_model() {
  enter_model(Model::kMomentum);
  model_.batches_tracked += std::ssize(entering_);
}

void BatchStatistics::enter_model(float momentum) {
  Backend& backend = model_.backend;
  const std::int64_t count = model_.graph.statistics, still = model_.graph.statistics_of(model_.frozen);
  if (!local_ && !on_device_) backend.send(device_, host_, static_cast<std::size_t>(count_) * sizeof(float));
  for (const int pass : entering_) {
    const float* statistic = device_ + 2 * count * pass + still;
    for (float* const running : {model_.running_mean, model_.running_variance}) {
      each(backend.device(), count - still, kernels::RunningStatistic{statistic, running + still, momentum});
      statistic += count;
    }
  }
  ++model_.parameters.version;
}

void BatchStatistics::save(Checkpoint& checkpoint) {
  if (!local_) return;
  const std::vector<float> mine = running_statistics(model_);
  checkpoint.doubles["bn_local"] = ranks_.gather(std::vector<double>(mine.begin(), mine.end()));
}

void BatchStatistics::restore(const Checkpoint& checkpoint) { restored_ = value_of(checkpoint.doubles, "bn_local"); }

void BatchStatistics::share(Communicator& ranks) {
  std::vector<double> all = std::exchange(restored_, {});
  share_doubles(ranks, all);
  const auto count = 2 * static_cast<std::size_t>(model_.graph.statistics);
  if (all.size() != count * static_cast<std::size_t>(ranks.size())) return;
  const double* const mine = all.data() + count * static_cast<std::size_t>(ranks.rank());
  set_running_statistics(model_, {mine, mine + count});
}

RootStatistics::RootStatistics(Communicator& ranks, Model& model, bool local) : model_(model) {
  if (!local) return;
  own_ = running_statistics(model);
  std::vector<float> root = own_;
  ranks.broadcast(root.data(), root.size() * sizeof(float));
  set_running_statistics(model, root);
}

void RootStatistics::end() {
  if (!own_.empty()) set_running_statistics(model_, own_);
}

}  // namespace dat
