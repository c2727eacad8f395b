#include "train/examples/local_examples.hpp"

#include <algorithm>

#include "dat/error.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

const char* const kBegun = "attack/begun";
constexpr int kBegunTag = 1;

}  // namespace

LocalExamples::LocalExamples(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                             const Loss& loss, const Attack& attack, Replica& replica, BatchStatistics* statistics,
                             PhaseTimer& timer)
    : ranks_(ranks),
      dataset_(images),
      loading_(loader_options(options, plan)),
      plan_(plan),
      attack_(attack),
      goal_(goal_of(options, loss, attack)),
      replica_(replica),
      timer_(timer),
      rounds_(plan.batch / plan.micro_batch),
      stale_(options.stale_attack),
      reuses_(options.attack_reuse) {
  if (statistics != nullptr) batch_objective_ = std::make_unique<BatchObjective>(replica, *statistics);
  require(!plan.ordered || options.warm_start == 0 || !plan.repeats_images(), ExitCode::usage,
          "with --deterministic, --warm-start wants each image once in a step: of ", plan.images,
          " training images, a step has some twice; choose a smaller batch");
  if (options.warm_start > 0)
    warm_start_ =
        std::make_unique<WarmStart>(ranks, replica.backend(),
                                    WarmStartOptions{.samples = images.size(),
                                                     .layout = replica.images().layout,
                                                     .micro_batch = plan.micro_batch,
                                                     .repeats = plan.mix.extra > 0,
                                                     .eps = options.eps,
                                                     .rounds = options.steps_may_be_left_out() ? rounds_ : 0,
                                                     .reset_steps = options.warm_start * plan.steps_per_epoch});
  if (stale_ > 0) begun_ = replica.backend().allocate_floats(begun_floats(plan.micro_batch), "images");
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
  batch_step_ = -1;
}

void LocalExamples::begin(std::int64_t step) {
  take_batch(step);
  examples_.first = 0;
  examples_.count = 0;
  examples_.batch = batch_->count;
  examples_.elsewhere = plan_.ordered ? batch_->elsewhere : 0;
  examples_.whole = plan_.ordered;
  passes_before_ = objective_->passes - (begun_attack_.step == step ? begun_attack_.passes : 0);
  bytes_sent_ = 0;
  timer_.lap(Phase::data);
}

const Examples* LocalExamples::next() {
  Images& images = replica_.images();
  examples_.first += examples_.count;
  examples_.count = micro_batch();
  examples_.unit = plan_.ordered ? examples_.first / examples_.count : 0;
  if (examples_.first >= examples_.batch) {
    for (int first = examples_.first; warm_start_ && first < rounds_ * examples_.count; first += examples_.count)
      bytes_sent_ += warm_start_->help(*batch_, first, examples_.count);
    return nullptr;
  }
  images.load(*batch_, examples_.first, examples_.count, pixels_);
  Objective& objective = prepared_objective();
  if (warm_start_) bytes_sent_ += warm_start_->load(objective, images.crops, *batch_, examples_.first, step_);
  timer_.lap(Phase::data);
  examples_.weights_version = replica_.model().parameters.version;
  if (begun_attack_.step == step_) {
    objective.start = begun_;
    attack_.resume(objective, stale_);
    begun_attack_ = {};
  } else {
    attack_.perturb(objective);
  }
  if (warm_start_ && !reuses_) warm_start_->keep(objective, images.crops);
  timer_.lap(Phase::attack);
  return &examples_;
}

void LocalExamples::look_ahead(std::int64_t step) {
  if (stale_ == 0) return;
  take_batch(step);
  Images& images = replica_.images();
  const int count = micro_batch();
  images.load(*batch_, 0, count, pixels_);
  Objective& objective = prepared_objective();
  timer_.lap(Phase::data);
  const std::int64_t before = objective.passes;
  attack_.begin(objective, stale_);
  // Images are also of evaluations between the steps.
  const std::int64_t floats = begun_floats(count);
  each(objective.device, kernels::groups(floats), kernels::Add<float>{objective.eta, nullptr, begun_, floats});
  begun_attack_ = {.step = step, .passes = objective.passes - before, .images = count};
  passes_before_ += begun_attack_.passes;  // not of the step that is being done
  timer_.lap(Phase::attack);
}

void LocalExamples::take_batch(std::int64_t step) {
  step_ = step;
  if (batch_step_ != step) batch_ = &loader_->next();
  batch_step_ = step;
}

Objective& LocalExamples::prepared_objective() {
  const auto epoch = static_cast<std::uint32_t>(plan_.epoch_of(step_));
  if (batch_objective_)
    batch_objective_->prepare(loading_.seed, epoch, place(), goal_);
  else
    replica_.attacked().prepare(loading_.seed, Purpose::attack_start, epoch, goal_);
  return *objective_;
}

void LocalExamples::trained() {
  if (!reuses_) return;
  attack_.step(*objective_);
  warm_start_->keep(*objective_, replica_.images().crops);
  timer_.lap(Phase::attack);
}

void LocalExamples::write(double* to, int unit) {
  *to = unit == 0 ? static_cast<double>(objective_->passes - passes_before_) : 0;
}

void LocalExamples::save(Checkpoint& checkpoint) {
  if (warm_start_) warm_start_->save(checkpoint);
  if (begun_attack_.step >= 0) save_begun(checkpoint);
}
void LocalExamples::restore(const Checkpoint& checkpoint) {
  if (warm_start_) warm_start_->restore(checkpoint);
  restore_begun(checkpoint);
}
void LocalExamples::share(Communicator&) {
  if (warm_start_) warm_start_->share();
  if (stale_ > 0) share_begun();
}

std::int64_t LocalExamples::images_of_first_micro_batch(std::int64_t step) const {
  return (step + 1) % plan_.steps_per_epoch == 0 ? plan_.last_micro_batch : plan_.micro_batch;
}

void LocalExamples::copy_begun(std::vector<float>& plain, bool to_device) {
  const Layout& layout = replica_.images().layout;
  Backend& backend = replica_.backend();
  std::vector<float> there(plain.size());
  if (!to_device) backend.copy_to_host(there.data(), begun_, there.size() * sizeof(float));
  auto one = plain.begin();
  for (std::int64_t n = 0; one != plain.end(); ++n)
    for (int c = 0; c < layout.c; ++c)
      for (int y = 0; y < layout.h; ++y)
        for (int x = 0; x < layout.w; ++x, ++one) {
          float& other = there[static_cast<std::size_t>(layout.offset(n, c, y, x))];
          (to_device ? other : *one) = to_device ? *one : other;
        }
  if (to_device) backend.copy_to_device(begun_, there.data(), there.size() * sizeof(float));
}

void LocalExamples::save_begun(Checkpoint& checkpoint) {
  const auto count = static_cast<std::size_t>(begun_floats(begun_attack_.images));
  std::vector<float> mine(count);
  copy_begun(mine, false);
  if (!ranks_.root()) return ranks_.send(mine.data(), count * sizeof(float), 0, kBegunTag);
  const Layout& layout = replica_.images().layout;
  Checkpoint::Array& all = checkpoint.arrays.emplace_back();
  all.name = kBegun;
  all.shape = {ranks_.size(), begun_attack_.images, layout.c, layout.h, layout.w};
  all.values = std::move(mine);
  all.values.resize(count * static_cast<std::size_t>(ranks_.size()));
  for (int rank = 1; rank < ranks_.size(); ++rank)
    ranks_.receive(all.values.data() + count * static_cast<std::size_t>(rank), count * sizeof(float), rank, kBegunTag);
  checkpoint.integers["begun_iterations"] = stale_;
  checkpoint.integers["begun_passes"] = begun_attack_.passes;
}

void LocalExamples::restore_begun(const Checkpoint& checkpoint) {
  begun_attack_ = {};
  restored_.clear();
  const auto found = std::find_if(checkpoint.arrays.begin(), checkpoint.arrays.end(),
                                  [](const Checkpoint::Array& array) { return array.name == kBegun; });
  if (found == checkpoint.arrays.end()) return;
  const std::int64_t step = integer_of(checkpoint, "step"), images = images_of_first_micro_batch(step),
                     iterations = integer_of(checkpoint, "begun_iterations");
  const Layout& layout = replica_.images().layout;
  const std::vector<std::int64_t> shape{ranks_.size(), images, layout.c, layout.h, layout.w};
  if (found->shape != shape || iterations != stale_ ||
      integer_of(checkpoint, "steps_per_epoch") != plan_.steps_per_epoch) {
    dropped_ = "the attack of the next step, of which --stale-attack " + std::to_string(iterations) +
               " had begun that part on " + std::to_string(found->shape.front()) +
               " ranks, begins anew: the ranks, their batches or the option are others now";
    return;
  }
  restored_ = found->values;
  begun_attack_ = {.step = step, .passes = integer_of(checkpoint, "begun_passes"), .images = images};
}

void LocalExamples::share_begun() {
  ranks_.broadcast(&begun_attack_, sizeof begun_attack_);
  if (begun_attack_.step < 0) return;
  const auto count = static_cast<std::size_t>(begun_floats(begun_attack_.images));
  std::vector<float> mine(count);
  if (ranks_.root()) {
    for (int rank = 1; rank < ranks_.size(); ++rank)
      ranks_.send(restored_.data() + count * static_cast<std::size_t>(rank), count * sizeof(float), rank, kBegunTag);
    std::copy_n(restored_.begin(), count, mine.begin());
    restored_ = {};
  } else {
    ranks_.receive(mine.data(), count * sizeof(float), 0, kBegunTag);
  }
  copy_begun(mine, true);
}

}  // namespace dat
