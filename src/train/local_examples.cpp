#include "train/local_examples.hpp"

namespace dat {

LocalExamples::LocalExamples(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                             const Attack& attack, Replica& replica, BatchStatistics* statistics, PhaseTimer& timer)
    : ranks_(ranks),
      dataset_(images),
      loading_{.batch = plan.batch,
               .micro_batch = plan.micro_batch,
               .mix = plan.mix,
               .augment = options.augment,
               .everyone = options.warm_start > 0,
               .warmup_epochs = options.warmup_epochs,
               .seed = options.seed},
      plan_(plan),
      attack_(attack),
      replica_(replica),
      timer_(timer),
      reuses_(options.attack_reuse) {
  if (statistics != nullptr) batch_objective_ = std::make_unique<BatchObjective>(replica, *statistics);
  if (options.warm_start > 0)
    warm_start_ =
        std::make_unique<WarmStart>(ranks, replica.backend(),
                                    WarmStartOptions{.samples = images.size(),
                                                     .layout = replica.images().layout,
                                                     .micro_batch = plan.micro_batch,
                                                     .repeats = plan.mix.extra > 0,
                                                     .eps = options.eps,
                                                     .reset_steps = options.warm_start * plan.steps_per_epoch});
  examples_ = {.attacked = replica.images().x_adv,
               .clean = replica.images().clean,
               .labels = replica.images().labels,
               .image_gradient = reuses_ ? replica.images().dx : nullptr};
  objective_ = batch_objective_ ? static_cast<Objective*>(batch_objective_.get()) : &replica.attacked();
}

void LocalExamples::start(std::int64_t step) {
  loading_.pixels = pixels_ == nullptr;
  loading_.first_step = step;
  loader_ = std::make_unique<Loader>(dataset_, ranks_.size(), ranks_.rank(), loading_);
}

void LocalExamples::begin(std::int64_t step) {
  step_ = step;
  batch_ = &loader_->next();
  examples_.first = 0;
  examples_.count = 0;
  examples_.batch = batch_->count;
  passes_before_ = objective_->passes;
  bytes_sent_ = 0;
  timer_.lap(Phase::data);
}

const Examples* LocalExamples::next() {
  Images& images = replica_.images();
  examples_.first += examples_.count;
  examples_.count = examples_.batch / plan_.micro_batches;
  if (examples_.first >= examples_.batch) return nullptr;
  images.load(*batch_, examples_.first, examples_.count, pixels_);
  Objective& objective = prepared_objective();
  if (warm_start_) bytes_sent_ += warm_start_->load(objective, images.crops, *batch_, examples_.first, step_);
  timer_.lap(Phase::data);
  examples_.weights_version = replica_.model().parameters.version;
  attack_.perturb(objective);
  if (warm_start_ && !reuses_) warm_start_->keep(objective, images.crops);
  timer_.lap(Phase::attack);
  return &examples_;
}

Objective& LocalExamples::prepared_objective() {
  const auto epoch = static_cast<std::uint32_t>(plan_.epoch_of(step_));
  if (batch_objective_) {
    const float share = static_cast<float>(examples_.count) / static_cast<float>(examples_.batch);
    batch_objective_->prepare(loading_.seed, epoch, share, examples_.begins_step());
  } else {
    replica_.attacked().prepare(loading_.seed, Purpose::attack_start, epoch);
  }
  return *objective_;
}

void LocalExamples::trained() {
  if (!reuses_) return;
  attack_.step(*objective_);
  warm_start_->keep(*objective_, replica_.images().crops);
}

void LocalExamples::write(double* to) { *to = static_cast<double>(objective_->passes - passes_before_); }

void LocalExamples::save(Checkpoint& checkpoint) {
  if (warm_start_) warm_start_->save(checkpoint);
}
void LocalExamples::restore(const Checkpoint& checkpoint) {
  if (warm_start_) warm_start_->restore(checkpoint);
}
void LocalExamples::share(Communicator&) {
  if (warm_start_) warm_start_->share();
}

}  // namespace dat
