#pragma once

#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "replica/replica.hpp"
#include "train/plan/plan.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

/// Makes the running statistics of the weights that are in the model, by one pass in training mode over the training
/// images: not attacked, under the training's noise where there is one, cut out at random as in training, but not
/// smaller, in the order of the first epoch. A step's batch of b images, after n others, enters with momentum b/(n +
/// b), so each image counts the same (bn_update of Izmailov et al., "Averaging Weights Leads to Wider Optima and Better
/// Generalization", UAI 2018). The result depends on the weights alone; over micro-batches and ranks it is averaged as
/// a training step's statistics are.
class StatisticsPass {
 public:
  /// Plans the pass while the training is built. The arguments must outlive the object.
  StatisticsPass(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                 Replica& replica, const SummationTree* order);

  /// Overwrites the model's running statistics. Uses the replica's images and programs. **Collective.**
  void run();

 private:
  Communicator& ranks_;
  Plan plan_;
  Replica& replica_;
  BatchReader reader_;
  HostBatch batch_;
  BatchStatistics statistics_;
  StepMessage message_;
};

}  // namespace dat
