#pragma once

#include <string>
#include <vector>

#include "dat/network.hpp"
#include "dat/optimizer.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// Averaged weights as a network: the running statistics that go with them, and the way into the model and out again.
///
/// Whose statistics these are is --average-bn: the weights' own, as the model has them (raw); their average, by the
/// same rule (ema); or those that the averaged weights themselves see on the training images (rebuild), which somebody
/// else makes (StatisticsPass). In checkpoints they stand beside the averaged weights.
class WeightAverage {
 public:
  /// Both must outlive it.
  WeightAverage(Model& model, AveragedOptimizer& optimizer, const std::string& statistics);

  /// [parameters.size], on the device.
  [[nodiscard]] const float* weights() const { return optimizer_.average(); }
  /// Whether it is more than the weights as they are.
  [[nodiscard]] bool has_begun() const { return optimizer_.taken() > 0; }
  /// After the update of step number `step` and of the model's running statistics.
  void follow(std::int64_t step);
  /// Exchanges the average with the model's weights, its statistics with the model's where it has any of its own, and
  /// back. Programs see that. Bits stay as they are.
  void exchange();

  /// Whether statistics have to be made before they are looked at: rebuilt ones, of weights that have changed since.
  /// Until averaging begins, the model's are right.
  [[nodiscard]] bool lacks_statistics() const { return rebuilds_ && has_begun() && !rebuilt_; }
  /// They have been made.
  void have_statistics() { rebuilt_ = true; }

  /// Statistics of its own; those that are lacking are left out.
  void save(Checkpoint& checkpoint) const;
  /// Once the optimizer has been restored.
  void restore(const Checkpoint& checkpoint);
  /// Once the ranks share weights and running statistics, and before they share the optimizer's state. **Collective.**
  void share(Communicator& ranks);
  void replicated(ReplicatedState& state);
  /// Numbers in a checkpoint, beside the optimizer's state.
  [[nodiscard]] std::int64_t statistics() const { return statistics_ != nullptr ? 2 * model_.graph.statistics : 0; }

 private:
  void average_statistics();

  Model& model_;
  AveragedOptimizer& optimizer_;
  bool rebuilds_;
  float* statistics_ = nullptr;  ///< [2][graph.statistics] on the device: means, variances; null: the model's are right
  bool rebuilt_ = false;
};

}  // namespace dat
