#include "train/watch/recompute.hpp"

#include "train/plan/goal.hpp"

namespace dat {

Recompute::Recompute(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                     const StepMethod& method, Replica& replica, PhaseTimer& timer)
    : plan_(plan),
      replica_(replica),
      timer_(timer),
      reader_(images, ranks.size(), loader_options(options, plan)),
      batch_(reader_.batch()),
      statistics_(ranks, replica.model(), method.entering_statistics()),
      attacker_(replica.images(), replica, method.attacks, method.attack_passes != 0 ? &statistics_ : nullptr),
      learner_(
          replica, *method.loss, plan.micro_batch, statistics_, method.attack_passes, timer, [](int) {},
          // Passes are recorded as the step's own are, where they are.
          method.unlabelled, passes_are_alike(options) && plan.micro_batches_of(0) == 1),
      gradients_(replica.backend().allocate_floats(replica.model().parameters.size, "recomputed gradients")) {}

const float* Recompute::recompute(std::int64_t step, MicroBatch of, const ActiveSet& active) {
  Backend& backend = replica_.backend();
  reader_.choose(batch_, step, of.rank, of.ranks != 0 ? of.ranks : plan_.ranks);
  if (attacker_.reads_pixels()) reader_.read_micro_batch(batch_, of.index);
  Batch& batch = attacker_.load(batch_, of.index);
  batch = batch.alone();
  timer_.lap(Phase::data);
  attacker_.begin();
  attacker_.finish();
  timer_.lap(Phase::attack);
  learner_.train(batch, active, gradients_);
  Backend::Ticket ticket{};
  learner_.fetch(ticket);
  statistics_.fetch(ticket);
  backend.wait_for(ticket);
  loss_ = learner_.loss_of(batch.n);
  return gradients_;
}

void Recompute::write_numbers(double* to) {
  learner_.write(to, 0);
  statistics_.write(to + learner_.places(), 0);
}

}  // namespace dat
