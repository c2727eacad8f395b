#include "train/watch/recompute.hpp"

#include "train/plan/goal.hpp"

namespace dat {

Recompute::Recompute(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                     const Method& method, Replica& replica, PhaseTimer& timer)
    : plan_(plan),
      method_(method),
      replica_(replica),
      timer_(timer),
      seed_(options.seed),
      reader_(images, ranks.size(), loader_options(options, plan)),
      batch_(reader_.batch()),
      statistics_(ranks, replica.model(), method.entering_statistics(), false),
      batch_objective_(method.attack_passes > 0 ? std::make_unique<BatchObjective>(replica, statistics_) : nullptr),
      learner_(
          replica, *method.loss, plan.micro_batch, statistics_, method.attack_passes, timer, [](int) {},
          method.unlabelled),
      gradients_(replica.backend().allocate_floats(replica.model().parameters.size, "recomputed gradients")) {}

Objective& Recompute::prepared_objective(std::int64_t step, const BatchStatistics::Place& place) {
  const auto epoch = static_cast<std::uint32_t>(plan_.epoch_of(step));
  const AttackGoal& goal = method_.in_epoch(plan_.epoch_of(step)).goal;
  if (batch_objective_) {
    batch_objective_->prepare(seed_, epoch, place, goal);
    return *batch_objective_;
  }
  replica_.attacked().prepare(seed_, Purpose::attack_start, epoch, goal);
  return replica_.attacked();
}

const float* Recompute::recompute(std::int64_t step, MicroBatch of, const ActiveSet& active) {
  Backend& backend = replica_.backend();
  const int ranks = of.ranks > 0 ? of.ranks : plan_.ranks;
  const Counters before = backend.counters;  // which are of the step's own work
  reader_.fill(batch_, step, of.rank, ranks);
  const int count = batch_.count / plan_.micro_batches_of(of.rank, ranks);
  Images& images = replica_.images();
  images.load(batch_, of.index * count, count, pixels_);
  const Examples examples{.attacked = images.x_adv,
                          .clean = images.clean,
                          .first_images = images.first_images,
                          .first_logits = images.first_logits,
                          .labels = images.labels,
                          .ids = images.ids,
                          .seed = seed_,
                          .epoch = static_cast<std::uint32_t>(plan_.epoch_of(step)),
                          .count = count,
                          .batch = batch_.count,
                          .elsewhere = plan_.ordered ? batch_.elsewhere : 0,
                          .whole = true};
  timer_.lap(Phase::data);
  method_.in_epoch(plan_.epoch_of(step))
      .attack->perturb(prepared_objective(step, {.unit = 0, .first = true, .share = examples.share()}));
  timer_.lap(Phase::attack);
  learner_.train(examples, active, gradients_);
  Backend::Ticket ticket = 0;
  learner_.fetch(ticket);
  statistics_.fetch(ticket);
  backend.wait_for(ticket);
  loss_ = learner_.loss_of(0, count);
  backend.counters = before;
  return gradients_;
}

void Recompute::write_numbers(double* to) {
  learner_.write(to, 0);
  statistics_.write(to + learner_.places(), 0);
}

}  // namespace dat
