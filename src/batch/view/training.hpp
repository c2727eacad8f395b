#pragma once

#include "batch/buffers/buffers.hpp"
#include "batch/view/programs.hpp"
#include "batch/view/view.hpp"
#include "dat/recordings.hpp"

namespace dat {

/// The network in training mode: batch statistics, which also enter the running ones, pass by pass. It knows no logits
/// of clean images (AttackGoal::reference).
class TrainingView final : public View {
 public:
  /// The arguments must outlive it.
  TrainingView(Buffers& buffers, Programs& programs, StatisticsSink& statistics);
  void prepare(const AttackGoal& goal) override;
  /// Computes the gradient; where the backend replays recordings, the work of a gradient, with the loss, and with the
  /// step, is one of them.
  void gradient() override { pass({}); }
  void gradient_step(float alpha, float eps) override { pass({clean, eta, x_adv, alpha, eps}); }

 private:
  /// Key of a pass's recording.
  struct Pass {
    const TrainingProgram* program;
    SampleLoss* loss;
    const float* step;  ///< null: none is made
    float alpha, eps;
    int frozen;  ///< Model::frozen
    friend bool operator==(const Pass&, const Pass&) = default;
  };
  void pass(const PgdUpdate& update);
  /// Queues a pass as a whole.
  void queue(TrainingProgram& program, const PgdUpdate& update);

  Buffers& buffers_;
  Programs& programs_;
  StatisticsSink& statistics_;
  float *losses_, *correct_;
  int pass_ = 0;
  Recordings<Pass> recorded_;
};

}  // namespace dat
