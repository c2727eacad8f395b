#include "batch/view/training.hpp"

namespace dat {

TrainingView::TrainingView(Buffers& buffers, Programs& programs, StatisticsSink& statistics)
    : buffers_(buffers),
      programs_(programs),
      statistics_(statistics),
      losses_(buffers.backend.allocate_floats(buffers.capacity, "losses")),
      correct_(buffers.backend.allocate_floats(buffers.capacity, "losses")) {
  losses = losses_;
  correct = correct_;
}

void TrainingView::prepare(const AttackGoal& goal) {
  buffers_.attach(*this);
  take(goal);
  seed = key.seed;
  time = key.epoch;
  pass_ = 0;
}

void TrainingView::gradient() {
  passes += n;
  TrainingProgram& program = programs_.training(n);
  program.forward(x_adv);
  logits = program.logits();
  loss({*this, program.logits(), losses_, correct_, program.dlogits()}, 1.0F);
  program.backward(x_adv, {.input = buffers_.dx});
  statistics_.add(program, pass_++, place());
}

}  // namespace dat
