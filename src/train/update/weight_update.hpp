#pragma once

#include <memory>
#include <string>

#include "dat/config.hpp"
#include "dat/optimizer.hpp"
#include "train/learner/weight_perturbation.hpp"
#include "train/plan/plan.hpp"
#include "train/statistics/batch_statistics.hpp"
#include "train/update/weight_average.hpp"

namespace dat {

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
  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }
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
