#include "train/examples/local_examples.hpp"

#include "dat/error.hpp"
#include "train/plan/goal.hpp"

namespace dat {

namespace {

/// The attack that the options ask for, with so many steps.
[[nodiscard]] std::unique_ptr<Attack> weak_attack(TrainOptions options, int steps, const DatasetInfo& images) {
  if (steps == 0) options.attack = "none";
  options.attack_steps = steps;
  return attack_of(options, images.classes);
}

}  // namespace

LocalExamples::LocalExamples(const ExampleParts& parts)
    : ranks_(parts.ranks),
      dataset_(parts.images),
      loading_(loader_options(parts.options, parts.plan)),
      plan_(parts.plan),
      method_(parts.method),
      cheating_(parts.cheating),
      replica_(parts.replica),
      timer_(parts.timer),
      reuses_(parts.options.attack_reuse),
      begun_(ranks_, plan_, replica_, parts.options.stale_attack) {
  const TrainOptions& options = parts.options;
  require(cheating_.weak().empty() || parts.method.attack_passes == 0, ExitCode::usage, "--cheat ", cheating_.weak(),
          " makes less of the attack, whose passes enter batch statistics here; take --attack-bn eval");
  if (const Cheat* cheat = cheating_.own(); cheat != nullptr && cheat->attack_steps())
    weak_ = weak_attack(options, *cheat->attack_steps(), dataset_.info());
  if (parts.method.attack_passes > 0) batch_objective_ = std::make_unique<BatchObjective>(replica_, parts.statistics);
  require(!plan_.ordered || options.warm_start == 0 || !plan_.repeats_images(), ExitCode::usage,
          "with --deterministic, --warm-start wants each image once in a step: of ", plan_.images,
          " training images, a step has some twice; choose a smaller batch");
  const Images& images = replica_.images();
  if (options.warm_start > 0)
    warm_start_ =
        std::make_unique<WarmStart>(ranks_, replica_.backend(),
                                    WarmStartOptions{.samples = dataset_.size(),
                                                     .layout = images.layout,
                                                     .micro_batch = plan_.micro_batch,
                                                     .repeats = plan_.mix.extra > 0,
                                                     .rounds = options.steps_may_be_left_out() ? rounds() : 0,
                                                     .reset_steps = options.warm_start * plan_.steps_per_epoch});
  require(options.staleness == 0 || parts.method.attack_passes == 0, ExitCode::usage,
          "--staleness wants attacks that leave batch statistics alone; add --attack-bn eval");
  if (options.staleness > 0)
    old_weights_ = std::make_unique<OldWeights>(staleness_of(options, *method_.last().attack), replica_);
  examples_ = {.attacked = images.x_adv,
               .clean = images.clean,
               .first_images = images.first_images,
               .first_logits = images.first_logits,
               .labels = images.labels,
               .ids = images.ids,
               .seed = options.seed,
               .image_gradient = reuses_ ? images.dx : nullptr};
  objective_ = batch_objective_ ? static_cast<Objective*>(batch_objective_.get()) : &replica_.attacked();
}

void LocalExamples::start(std::int64_t step) {
  loading_.pixels = pixels_ == nullptr;
  loading_.first_step = step;
  loader_ = std::make_unique<Loader>(dataset_, ranks_.size(), ranks_.rank(), loading_);
  batch_step_ = -1;
}

void LocalExamples::begin(std::int64_t step) {
  take_batch(step);
  examples_.first = 0;
  examples_.count = 0;
  examples_.batch = batch_->count;
  examples_.epoch = static_cast<std::uint32_t>(plan_.epoch_of(step));
  examples_.elsewhere = plan_.ordered ? batch_->elsewhere : 0;
  examples_.whole = plan_.ordered;
  passes_before_ = objective_->passes - begun_.passes_of(step);
  bytes_sent_ = 0;
  timer_.lap(Phase::data);
  if (old_weights_) old_weights_->begin(step);
}

const Examples* LocalExamples::next() {
  Images& images = replica_.images();
  examples_.first += examples_.count;
  examples_.count = micro_batch();
  examples_.unit = plan_.ordered ? examples_.first / examples_.count : 0;
  if (examples_.first >= examples_.batch) {
    for (int first = examples_.first; warm_start_ && first < rounds() * examples_.count; first += examples_.count)
      bytes_sent_ += warm_start_->help(*batch_, first, examples_.count);
    return nullptr;
  }
  images.load(*batch_, examples_.first, examples_.count, pixels_);
  if (Cheat* cheat = cheating_.now()) falsify_labels(*cheat, examples_.first, examples_.count);
  if (old_weights_) old_weights_->take_up();
  Objective& objective = prepared_objective();
  if (warm_start_)
    bytes_sent_ += warm_start_->load(objective, now().eps, images.crops, *batch_, examples_.first, step_);
  timer_.lap(Phase::data);
  examples_.weights_version = replica_.model().parameters.version;
  if (begun_.is_of(step_))
    begun_.resume(*now().attack, objective);
  else if (old_weights_)
    old_weights_->perturb(*now().attack, objective);
  else
    attack().perturb(objective);
  if (warm_start_ && !reuses_) warm_start_->keep(objective, now().eps, images.crops);
  timer_.lap(Phase::attack);
  return &examples_;
}

const Attack& LocalExamples::attack() const { return weak_ && cheating_.now() != nullptr ? *weak_ : *now().attack; }

void LocalExamples::falsify_labels(Cheat& cheat, int first, int count) {
  const auto from = batch_->labels.begin() + first;
  std::vector<std::int32_t> labels(from, from + count);
  cheat.labels(labels);
  const Images& images = replica_.images();
  images.backend.copy_to_device(images.labels, labels.data(), labels.size() * sizeof(std::int32_t));
}

void LocalExamples::look_ahead(std::int64_t step) {
  if (begun_.iterations() == 0) return;
  take_batch(step);
  replica_.images().load(*batch_, 0, micro_batch(), pixels_);
  if (Cheat* cheat = cheating_.at(step)) falsify_labels(*cheat, 0, micro_batch());
  Objective& objective = prepared_objective();
  timer_.lap(Phase::data);
  passes_before_ += begun_.begin(*now().attack, objective, step);  // not of the step that is being done
  timer_.lap(Phase::attack);
}

void LocalExamples::take_batch(std::int64_t step) {
  step_ = step;
  if (batch_step_ != step) batch_ = &loader_->next();
  batch_step_ = step;
  replica_.images().cut(batch_->size);
  objective_ = batch_objective_ ? static_cast<Objective*>(batch_objective_.get()) : &replica_.attacked();
}

Objective& LocalExamples::prepared_objective() {
  const auto epoch = static_cast<std::uint32_t>(plan_.epoch_of(step_));
  if (batch_objective_)
    batch_objective_->prepare(loading_.seed, epoch, place(), now().goal);
  else
    replica_.attacked().prepare(loading_.seed, Purpose::attack_start, epoch, now().goal);
  return *objective_;
}

void LocalExamples::trained() {
  if (!reuses_) return;
  now().attack->step(*objective_);
  warm_start_->keep(*objective_, now().eps, replica_.images().crops);
  timer_.lap(Phase::attack);
}

void LocalExamples::write(double* to, int unit) {
  *to = unit == 0 ? static_cast<double>(objective_->passes - passes_before_) : 0;
}

void LocalExamples::save(Checkpoint& checkpoint) {
  if (warm_start_) warm_start_->save(checkpoint);
  begun_.save(checkpoint);
  if (old_weights_) old_weights_->save(checkpoint);
}
void LocalExamples::restore(const Checkpoint& checkpoint) {
  if (warm_start_) warm_start_->restore(checkpoint);
  begun_.restore(checkpoint);
  if (old_weights_) old_weights_->restore(checkpoint);
}
void LocalExamples::share(Communicator& ranks) {
  if (warm_start_) warm_start_->share();
  begun_.share();
  if (old_weights_) old_weights_->share(ranks);
}

std::unique_ptr<ExampleSource> make_local_examples(const ExampleParts& parts) {
  return std::make_unique<LocalExamples>(parts);
}

}  // namespace dat
