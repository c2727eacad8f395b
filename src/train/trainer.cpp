#include "train/trainer.hpp"

#include "dat/error.hpp"
#include "train/examples/examples.hpp"
#include "train/layers/costs.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/replica_of.hpp"
#include "train/protocol/ban_protocol.hpp"

namespace dat {

namespace {

constexpr int kShown = 8;  ///< images in a picture of an evaluation

/// Null: none.
[[nodiscard]] const SummationTree* address(const std::optional<const SummationTree>& order) {
  return order ? &*order : nullptr;
}

}  // namespace

Trainer::Trainer(Communicator& ranks, const TrainOptions& options) : Trainer(ranks, options, open_splits(options)) {}

Trainer::Trainer(Communicator& ranks, const TrainOptions& options, Splits splits)
    : ranks_(ranks),
      options_(options),
      splits_(std::move(splits)),
      plan_(options, mix_of(options, *splits_.train, ranks.size()), ranks.size()),
      order_(plan_.ordered ? std::optional<const SummationTree>(std::in_place, plan_.micro_batches, ranks.size())
                           : std::nullopt),
      method_(options, *splits_.train),
      replica_(replica_of(options, plan_, splits_.train->info(), ranks, method_, Role::trainer)),
      timer_(replica_.backend()),
      cheating_(ranks, options, splits_.train->info().classes, replica_.model().parameters.size),
      statistics_(ranks, replica_.model(), method_.entering_statistics(), address(order_),
                  options.bn_statistics == "local"),
      examples_(
          make_examples({ranks, *splits_.train, options_, plan_, method_, replica_, statistics_, timer_, cheating_})),
      layers_(make_layer_sampling(ranks, options, plan_, replica_.model())),
      exchange_(make_exchange(
          {ranks, *splits_.train, options_, plan_, method_, replica_, address(order_), timer_, cheating_})),
      learner_(
          replica_, *method_.loss, plan_.batch, statistics_, method_.attack_passes, timer_,
          [this](int segment) {
            layers_->weigh(segment);
            exchange_->reducer().ready(segment);
          },
          method_.unlabelled, passes_are_alike(options)),
      update_(options, plan_, replica_.model(), statistics_),
      checks_(
          {ranks, *splits_.train, options_, plan_, method_, replica_, learner_, statistics_, address(order_), timer_}),
      assessment_(ranks, replica_, method_.evaluation,
                  plan_.ordered ? Evaluator::Dealing::batches : Evaluator::Dealing::samples,
                  options.tensorboard ? kShown : 0) {
  if (options.awp_gamma > 0) wrap_examples();
  queues_ahead_ = can_queue_ahead();
  if (queues_ahead_) statistics_.stay_on_device();
  StepMessage &message = exchange_->message(), &of_contributions = exchange_->message_of_contributions();
  message.add(checks_.numbers());
  of_contributions.add(learner_);
  message.add(*examples_);
  message.add(checks_.vote());
  message.add(*layers_);
  of_contributions.add(cheating_.falsify(statistics_));
  exchange_->ready();
  if (options.average_bn == "rebuild")
    statistics_pass_ =
        std::make_unique<StatisticsPass>(ranks, *splits_.train, options, plan_, replica_, address(order_));
  checks_.compare(parts());
  replica_.model().initialize(options.seed);
  replica_.commit();
  put_images_on_device();
}

void Trainer::put_images_on_device() {
  Backend& backend = replica_.backend();
  const auto resident = [&](const Dataset& images, const std::string& wanted) {
    return fits_on_device(backend, images, wanted) ? put_on_device(backend, images) : nullptr;
  };
  const std::uint8_t* pixels = resident(*splits_.train, training_images_resident(options_));
  examples_->keep_on_device(pixels);
  checks_.keep_on_device(pixels);
  exchange_->keep_on_device(pixels);
  assessment_.add("test", *splits_.test, resident(*splits_.test, options_.resident));
  if (splits_.holdout) assessment_.add("holdout", *splits_.holdout, resident(*splits_.holdout, options_.resident));
  options_.resident = pixels != nullptr ? "on" : "off";  // the choice that was made
}

void Trainer::wrap_examples() {
  float* const gradients = replica_.backend().allocate_floats(replica_.model().parameters.size, "weight perturbation");
  auto around = std::make_unique<WeightPerturbation>(
      ranks_, options_, plan_, method_, replica_, std::move(examples_), *layers_, gradients,
      options_.awp == "global" ? exchange_->make_reducer(gradients, "float32", "auto", "mean") : nullptr,
      address(order_), timer_);
  update_.find_weights_by(*around);
  examples_ = std::move(around);
}

void Trainer::start() {
  examples_->start(step_);
  timer_.start();
}

const StepRecord& Trainer::step(bool stop) {
  checks_.begin_step(stop || examples_->stop_wanted());
  cheating_.begin(step_);
  exchange_->begin_step(step_);
  timer_.lap(Phase::other);
  const std::int64_t given = ranks_.bytes_given();
  const ActiveSet& active = layers_->draw(step_);
  const std::int64_t drawn_bytes = ranks_.bytes_given() - given;
  const std::exception_ptr failed = std::exchange(failed_ahead_, nullptr);
  if (!std::exchange(ahead_, false))
    work_on(step_, active);
  else if (failed)
    std::rethrow_exception(failed);
  const std::int64_t weight_gradients = weight_gradients_;
  if (step_ + 1 < plan_.end) examples_->look_ahead(step_ + 1);
  if (!exchange_->finish()) {
    leave_out();
    return record_;
  }
  checks_.look_at_sum(layers_->summed());
  if (queues_ahead_)
    update_unseen(active);
  else
    exchange_->sum();
  timer_.lap(Phase::exposed);

  layers_->require_agreement();
  exchange_->keep(active);
  if (queues_ahead_ && checks_.vote().bad_agreed()) update_.take_back();
  if (checks_.may_update(step_, active)) {
    layers_->learn(checks_.squares());
    timer_.lap(Phase::select);
    if (!queues_ahead_) update_.apply(layers_->updated(), step_, checks_.skipped_steps().lr_factor);
  } else {
    leave_out();
  }
  if (checks_.scale_has_changed()) ahead_ = false;  // the queued work has the old scale, and is made anew
  timer_.lap(Phase::update);
  ++step_;
  checks_.end_step();
  return record(weight_gradients, drawn_bytes);
}

bool Trainer::can_queue_ahead() const {
  const bool examples_are_made_anew =
      options_.warm_start == 0 && options_.stale_attack == 0 && options_.staleness == 0 && options_.generators == 0;
  const bool host_waits_anyway = options_.attack_stop >= 0;
  const bool one_unit = !plan_.ordered || plan_.micro_batches == 1;
  return model().backend.replays() && ranks_.size() == 1 && options_.selector == "all" && options_.codec == "float32" &&
         options_.aggregator == "mean" && options_.verify == 0 && options_.attackers.empty() &&
         examples_are_made_anew && one_unit && !host_waits_anyway;
}

void Trainer::work_on(std::int64_t step, const ActiveSet& active) {
  Backend& backend = replica_.backend();
  const std::int64_t before = backend.counters.conv_backward_weights;
  replica_.model().freeze(plan_.frozen_in(step));
  exchange_->begin(layers_->brought(), step);
  examples_->begin(step);
  checks_.begin_examples(step);
  if (exchange_->contributes()) train_on_examples(active);
  weight_gradients_ = backend.counters.conv_backward_weights - before;
}

void Trainer::update_unseen(const ActiveSet& active) {
  Backend& backend = replica_.backend();
  const double* const finite = checks_.numbers().decide();
  const Backend::Ticket told = exchange_->message().fetch_ahead();
  backend.only_where(finite);
  update_.apply(layers_->updated(), step_, checks_.skipped_steps().lr_factor);
  backend.only_where(nullptr);
  timer_.lap(Phase::update);
  backend.queue_behind(told);  // memory that is fetched is overwritten from here on
  const bool alike = plan_.frozen_in(step_) == plan_.frozen_in(step_ + 1);
  ahead_ = step_ + 1 < plan_.end && alike && !checks_.vote().wish;
  try {
    if (ahead_) work_on(step_ + 1, active);
  } catch (const Error& error) {  // the next step's images cannot be read: this one is finished first
    if (error.code() != ExitCode::data && error.code() != ExitCode::io) throw;
    failed_ahead_ = std::current_exception();
  }
  exchange_->sum();
}

void Trainer::train_on_examples(const ActiveSet& active) {
  while (const Batch* batch = examples_->next()) {
    checks_.look_at(*batch);
    float* const place = exchange_->reducer().place(batch->key.unit);
    learner_.train(*batch, active, place);
    checks_.keep(*batch, place, active);
    examples_->trained();
  }
  checks_.look_at_own(exchange_->reducer().own(), active);
}

std::vector<Stateful*> Trainer::parts() {
  std::vector<Stateful*> all{&update_,
                             &statistics_,
                             layers_.get(),
                             &exchange_->codec_state(),
                             examples_.get(),
                             &timer_,
                             &checks_.skipped_steps(),
                             exchange_.get()};
  if (checks_.loss_scale() != nullptr) all.push_back(checks_.loss_scale());
  return all;
}

/// Nothing of the step stays but the draw of layers, into which none of its numbers has gone.
void Trainer::leave_out() {
  exchange_->put_back();
  examples_->take_back();
}

/// Record of the step that has been done last. drawn_bytes: sent for its draw of layers.
const StepRecord& Trainer::record(std::int64_t weight_gradients, std::int64_t drawn_bytes) {
  record_.step = step_;
  record_.epoch = plan_.epoch_of(step_ - 1);
  record_.steps_per_epoch = plan_.steps_per_epoch;
  record_.lr = update_.lr(step_ - 1) * checks_.skipped_steps().lr_factor;
  record_.seconds = timer_.end_step();
  record_.wall_time = timer_.wall_time();
  const Learner::Result &attacked = learner_.of(Loss::Images::attacked), &clean = learner_.of(Loss::Images::clean);
  record_.images = learner_.images();
  record_.loss_adv = attacked.loss;
  record_.acc_adv = attacked.accuracy;
  record_.loss_clean = clean.loss;
  record_.acc_clean = clean.accuracy;
  record_.attack_passes = examples_->attack_passes();
  record_.eps = method_.attacks.in_epoch(record_.epoch).eps;
  record_.generators = examples_->generators();
  // Each micro-batch computes the same ones.
  record_.weight_gradients =
      plan_.ordered ? weight_gradients / plan_.micro_batches_of(ranks_.rank()) * plan_.micro_batches : weight_gradients;
  record_.active_elements = exchange_->reducer().elements();
  record_.bytes_sent = exchange_->reducer().bytes_sent();
  record_.bytes_other = exchange_->bytes_sent() + examples_->bytes_sent() + drawn_bytes + checks_.bytes_sent();
  record_.scale = &layers_->active().scale;
  record_.p = &layers_->probabilities();
  record_.norms = layers_->norms();
  record_.distances = exchange_->distances();
  bytes_ += static_cast<double>(record_.bytes_sent + record_.bytes_other);
  return record_;
}

std::vector<EvaluationRecord> Trainer::evaluate(const std::function<void(double)>& progress) {
  const CallLabel label("evaluation");
  timer_.lap(Phase::other);
  const double time = timer_.wall_time();
  RootStatistics root(ranks_, replica_.model(), statistics_.local());
  WeightAverage* const average = update_.average();
  const double passes = average != nullptr && average->has_begun() ? 2 : 1;
  const auto part_of_pass = [&](double before) -> std::function<void(double)> {
    if (!progress) return {};
    return [&progress, passes, before](double part) { progress((before + part) / passes); };
  };
  if (progress) progress(0);
  std::vector<EvaluationRecord> records = assessment_.run(options_.seed, part_of_pass(0));
  if (average != nullptr) {
    std::vector<EvaluationRecord> averaged = records;  // right until averaging begins
    if (average->has_begun()) {
      complete_average();
      average->exchange();
      averaged = assessment_.run(options_.seed, part_of_pass(1));
      average->exchange();
    }
    for (EvaluationRecord& record : averaged) {
      record.weights = "average";
      records.push_back(std::move(record));
    }
  }
  root.end();
  timer_.lap(Phase::evaluate);
  for (EvaluationRecord& record : records) {
    record.step = step_;
    record.epoch = plan_.epoch_of(step_);
    record.wall_time = time;
  }
  return records;
}

void Trainer::complete_average() {
  WeightAverage* average = update_.average();
  if (average == nullptr || !average->lacks_statistics()) return;
  average->exchange();
  statistics_pass_->run();
  average->exchange();
  average->have_statistics();
}

Checkpoint Trainer::capture() {
  const CallLabel label("state for the checkpoint");
  Checkpoint checkpoint;
  checkpoint.integers["step"] = step_;
  for (Stateful* part : parts()) part->save(checkpoint);
  checkpoint.integers["steps_per_epoch"] = plan_.steps_per_epoch;
  checkpoint.integers["ranks"] = ranks_.size();
  checkpoint.integers["threads"] = choose_threads(options_.threads, ranks_on_node(ranks_, options_));
  checkpoint.integers["train_images"] = splits_.train->size();
  checkpoint.integers["image_size"] = splits_.train->info().size;
  checkpoint.integers["image_channels"] = splits_.train->info().channels;
  for (const auto& [split, hash] : splits_.hashes) checkpoint.texts["hash_" + split] = hash;
  checkpoint.texts["class_names"] = lines_of(splits_.train->info().class_names);
  return checkpoint;
}

std::int64_t steps_done_at(const Checkpoint& checkpoint, const Plan& plan, std::int64_t images) {
  require(integer_of(checkpoint, "train_images") == images, ExitCode::usage, "the checkpoint was trained on ",
          integer_of(checkpoint, "train_images"), " images, --data and --limit-train give ", images);
  const std::int64_t then = integer_of(checkpoint, "steps_per_epoch");
  require(then > 0, ExitCode::checkpoint, "the checkpoint has epochs of ", then, " steps");
  return at_same_place(integer_of(checkpoint, "step"), then, plan.steps_per_epoch);
}

void Trainer::restore(const Checkpoint& checkpoint, bool other_options) {
  step_ = steps_done_at(checkpoint, plan_, splits_.train->size());
  for (Stateful* part : parts()) {
    part->restore(checkpoint);
    if (other_options) part->forget_step_under_way();
  }
}

void Trainer::share_state() {
  const CallLabel label("state of rank 0");
  layers_->share_costs([this] {
    return measure_layer_seconds(replica_, plan_, splits_.train->info(),
                                 static_cast<int>(method_.loss->passes().size()), ranks_);
  });
  for (Stateful* part : parts()) part->share(ranks_);
  ranks_.broadcast(&step_, sizeof step_);
  replica_.model().freeze(plan_.frozen_in(step_ - 1));  // the state that the last step has left
}

void Trainer::set_back(const SkippedSteps& before, double lr_factor) {
  SkippedSteps& now = checks_.skipped_steps();
  now.in_a_row = 0;
  now.rollbacks = before.rollbacks + 1;
  now.lr_factor = before.lr_factor * lr_factor;
}

std::int64_t Trainer::checkpoint_bytes(int ranks) const {
  const bool guarded = options_.byzantine && ranks > 1;
  return static_cast<std::int64_t>(sizeof(float)) *
             (model().parameters.size + 2 * model().graph.statistics + update_.state_size()) +
         exchange_->codec_state().bytes(ranks) + examples_->checkpoint_bytes(ranks) +
         (guarded ? KeptStep::checkpoint_bytes(model()) : 0);
}

RankRecord Trainer::gather_times() {
  const CallLabel label("times and bytes");
  const std::array<double, kPhases> seconds = timer_.take();
  std::vector<double> mine(seconds.begin(), seconds.end());
  mine.push_back(std::exchange(bytes_, 0));
  const std::vector<double> all = ranks_.gather(mine);
  RankRecord record;
  record.step = step_;
  for (std::size_t at = 0; at < all.size(); at += kPhases + 1) {
    record.seconds.insert(record.seconds.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                          all.begin() + static_cast<std::ptrdiff_t>(at + kPhases));
    record.bytes.push_back(all[at + kPhases]);
  }
  return record;
}

TrainOptions Trainer::resolved() const {
  TrainOptions all = options_;
  all.budget = layers_->budget();
  if (plan_.ordered) {
    all.total_batch = static_cast<int>(plan_.total_batch);
    all.batch = 0;
  }
  all.device = model().backend.device().kind == DeviceKind::cpu ? "cpu" : "cuda";
  all.threads = choose_threads(options_.threads, ranks_on_node(ranks_, options_));
  put_back_unused(all);
  return all;
}

}  // namespace dat
