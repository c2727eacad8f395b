#pragma once

#include "batch/buffers/buffers.hpp"
#include "batch/view/programs.hpp"
#include "batch/view/view.hpp"

namespace dat {

/// The network in training mode: batch statistics, which also enter the running ones, pass by pass. It knows no logits
/// of clean images (AttackGoal::reference).
class TrainingView final : public View {
 public:
  /// The arguments must outlive it.
  TrainingView(Buffers& buffers, Programs& programs, StatisticsSink& statistics);
  void prepare(const AttackGoal& goal) override;
  void gradient() override;

 private:
  Buffers& buffers_;
  Programs& programs_;
  StatisticsSink& statistics_;
  float *losses_, *correct_;
  int pass_ = 0;
};

}  // namespace dat
