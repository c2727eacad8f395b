#pragma once

#include "replica/replica.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

/// The attack's view of the network in training mode: batch statistics, which also enter the running ones, pass by
/// pass. It knows no logits of clean images (AttackGoal::reference).
class BatchObjective final : public Objective {
 public:
  BatchObjective(Replica& replica, BatchStatistics& statistics);
  /// For the samples that are in the replica's images now, whose place in the step's statistics this is.
  void prepare(std::uint64_t seed, std::uint32_t time, const BatchStatistics::Place& place,
               const AttackGoal& goal = {});
  void gradient() override;

 private:
  Replica& replica_;
  BatchStatistics& statistics_;
  float *losses_, *correct_;
  int pass_ = 0;
  BatchStatistics::Place place_;
};

}  // namespace dat
