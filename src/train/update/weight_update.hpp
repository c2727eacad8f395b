#pragma once

#include <memory>
#include <string>

#include "dat/config.hpp"
#include "dat/network.hpp"
#include "dat/optimizer.hpp"
#include "train/learner/weight_perturbation.hpp"
#include "train/message/stateful.hpp"
#include "train/plan/plan.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

/// Averaged weights as a network: the running statistics that go with them, and the way into the model and out again.
///
/// --average ema:bn=NAME says which statistics go with them: the raw weights' own, as the model has them (raw);
/// the average of these by the rule of the weights (ema); or the statistics that the averaged weights themselves see on
/// the training images (rebuild), which StatisticsPass makes. In checkpoints the statistics stand beside the averaged
/// weights.
class WeightAverage {
 public:
  /// Model and optimizer must outlive the object.
  WeightAverage(Model& model, AveragedOptimizer& optimizer, const std::string& statistics);

  /// The averaged weights [parameters.size], on the device.
  [[nodiscard]] const float* weights() const { return optimizer_.average(); }
  /// Returns whether averaging has begun; until then the average is the present weights.
  [[nodiscard]] bool has_begun() const { return optimizer_.taken() > 0; }
  /// Takes up weights and statistics, after the update of step number `step` and of the model's running statistics.
  void follow(std::int64_t step);
  /// The last follow() has left everything on the device as it was.
  void take_back() { rebuilt_ = rebuilt_before_; }
  /// Exchanges the average with the model's weights, and its statistics with the model's where it has statistics of its
  /// own; a second call exchanges them back. Programs notice the change. Bits stay as they are.
  void exchange();

  /// Returns whether statistics must be rebuilt before the average is evaluated, because the weights have changed since
  /// the last pass. Until averaging begins, the model's statistics are right.
  [[nodiscard]] bool lacks_statistics() const { return rebuilds_ && has_begun() && !rebuilt_; }
  /// Says that the statistics have been rebuilt.
  void have_statistics() { rebuilt_ = true; }

  /// Saves the statistics of the average's own, unless lacks_statistics().
  void save(Checkpoint& checkpoint) const;
  /// Restores the state, once the optimizer has been restored.
  void restore(const Checkpoint& checkpoint);
  /// Shares the state, once the ranks share weights and running statistics, and before they share the optimizer's
  /// state. **Collective.**
  void share(Communicator& ranks);
  void replicated(ReplicatedState& state);
  /// Numbers in a checkpoint, beside the optimizer's state.
  [[nodiscard]] std::int64_t statistics() const { return statistics_ != nullptr ? 2 * model_.graph.statistics : 0; }

 private:
  void average_statistics();

  Model& model_;
  AveragedOptimizer& optimizer_;
  bool rebuilds_, averages_;     ///< statistics: rebuild, ema
  float* statistics_ = nullptr;  ///< [2][graph.statistics] on the device: means, variances; null: the model's are right
  bool rebuilt_ = false, rebuilt_before_ = false;  ///< rebuilt_before_: value before the last follow()
};

/// The end of a step: learning rate and momentum of the moment, the optimizer, the running statistics, the average of
/// both.
class WeightUpdate final : public Stateful {
 public:
  WeightUpdate(const TrainOptions& options, const Plan& plan, Model& model, BatchStatistics& statistics);

  [[nodiscard]] double lr(std::int64_t step) const { return schedule_->lr(step); }
  [[nodiscard]] double momentum(std::int64_t step) const {
    return momentum_ + (peak_momentum_ - momentum_) * schedule_->height(step);
  }
  /// Makes the update of step number `step`, with the mean gradient in model.parameters.gradients and lr_factor times
  /// the learning rate of the step.
  void apply(const ActiveSet& active, std::int64_t step, double lr_factor);
  /// The last apply() has left everything on the device as it was (Backend::only_where): it does not count.
  void take_back();
  /// Says from now on where the optimizer finds the weights at that moment; else it finds them where they are.
  void find_weights_by(WeightPerturbation& perturbation) { perturbation_ = &perturbation; }
  /// Null: weights are not averaged.
  [[nodiscard]] WeightAverage* average() { return average_.get(); }
  /// Numbers of a checkpoint beside the weights and the running statistics.
  [[nodiscard]] std::int64_t state_size() const;

  /// Weights, running statistics and the optimizer's state. An average by another rule is left out: a new average
  /// begins.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;

 private:
  Model& model_;
  std::string rule_;  ///< rule of the average; "none": there is no average
  BatchStatistics& statistics_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<WeightAverage> average_;
  WeightPerturbation* perturbation_ = nullptr;
  double momentum_, peak_momentum_;  ///< momentum where the rate is low, and where it peaks
};

}  // namespace dat
