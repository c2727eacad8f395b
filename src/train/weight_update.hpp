#pragma once

#include <memory>

#include "dat/config.hpp"
#include "dat/optimizer.hpp"
#include "train/batch_statistics.hpp"
#include "train/plan.hpp"

namespace dat {

/// The end of a step: the learning rate of the moment, the optimizer, the running statistics.
class WeightUpdate final : public Stateful {
 public:
  WeightUpdate(const TrainOptions& options, const Plan& plan, Model& model, BatchStatistics& statistics);

  [[nodiscard]] double lr(std::int64_t step) const { return schedule_->lr(step); }
  /// Of step number `step`, with the mean gradient in model.parameters.gradients and lr_factor times its rate.
  void apply(const ActiveSet& active, std::int64_t step, double lr_factor);
  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }

  /// Weights, running statistics and the optimizer's state.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;

 private:
  Model& model_;
  BatchStatistics& statistics_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace dat
