#include "batch/view/training.hpp"

#include "perturb.hpp"

namespace dat {

TrainingView::TrainingView(Buffers& buffers, Programs& programs, StatisticsSink& statistics)
    : buffers_(buffers),
      programs_(programs),
      statistics_(statistics),
      losses_(buffers.backend.allocate_floats(buffers.capacity, "losses")),
      correct_(buffers.backend.allocate_floats(buffers.capacity, "losses")),
      recorded_(buffers.backend) {
  losses = losses_;
  correct = correct_;
}

void TrainingView::prepare(const AttackGoal& goal) {
  buffers_.attach(*this);
  take(goal);
  seed = key.seed;
  time = key.epoch;
  pass_ = 0;
  // Gradients in f16 about as large as in a training pass, whose loss is a mean as well: both have one loss scale.
  scale = programs_.training(n).storage() == DType::f16 ? 1.0F / static_cast<float>(n) : 1.0F;
}

void TrainingView::pass(const PgdUpdate& update) {
  passes += n;
  TrainingProgram& program = programs_.training(n);
  logits = program.logits();
  program.refresh();  // not inside what is recorded
  recorded_.play({&program, loss, update.x, update.alpha, update.eps, programs_.model().frozen},
                 [this, &program, update] { queue(program, update); });
  statistics_.add(program, pass_++, place());
}

void TrainingView::queue(TrainingProgram& program, const PgdUpdate& update) {
  program.forward(x_adv, true);
  loss({*this, program.logits(), losses_, correct_, program.dlogits()}, scale);
  program.backward(x_adv, {.input = buffers_.dx, .whole = true});
  // An overflow in an attack alone would leave images as they are, and the loss scale would not learn of it.
  if (program.storage() == DType::f16)
    each(device, n * layout.elements(), kernels::SpoilPerturbation{buffers_.dx, eta});
  if (update.x != nullptr) each(device, n * layout.elements(), kernels::PgdStep{update, buffers_.dx});
}

}  // namespace dat
