#include "train/examples/batch_objective.hpp"

namespace dat {

BatchObjective::BatchObjective(Replica& replica, BatchStatistics& statistics)
    : replica_(replica),
      statistics_(statistics),
      losses_(replica.backend().allocate_floats(replica.images().capacity, "losses")),
      correct_(replica.backend().allocate_floats(replica.images().capacity, "losses")) {
  attach(*this, replica.images());
  losses = losses_;
  correct = correct_;
}

void BatchObjective::prepare(std::uint64_t key, std::uint32_t when, const BatchStatistics::Place& place,
                             const AttackGoal& goal) {
  attach(*this, replica_.images());  // of the size at hand
  n = replica_.images().count;
  start = nullptr;
  seed = key;
  time = when;
  take_goal(*this, replica_.images(), goal);
  pass_ = 0;
  place_ = place;
}

void BatchObjective::gradient() {
  passes += n;
  TrainingProgram& program = replica_.training(n);
  program.forward(x_adv);
  logits = program.logits();
  loss({.device = device,
        .values = program.logits(),
        .labels = labels,
        .targets = targets,
        .n = n,
        .classes = classes,
        .loss = losses_,
        .correct = correct_,
        .gradient = program.dlogits()},
       1.0F);
  program.backward(x_adv, {.input = replica_.images().dx});
  statistics_.add(program, pass_++, place_);
}

}  // namespace dat
