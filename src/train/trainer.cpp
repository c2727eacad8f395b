#include "train/trainer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dat/error.hpp"
#include "reduce/tree_reducer.hpp"
#include "train/layers/costs.hpp"

namespace dat {

namespace {

[[nodiscard]] std::unique_ptr<Attack> attack_of(const TrainOptions& options, int classes) {
  return attacks().at(options.attack)({.norm = norm_from(options.norm),
                                       .eps = options.eps,
                                       .alpha = options.alpha,
                                       .steps = options.attack_steps - (options.attack_reuse ? 1 : 0),
                                       .stop = options.attack_stop,
                                       .classes = classes,
                                       .best_loss = true});
}

[[nodiscard]] EvaluationOptions evaluation_of(const TrainOptions& options, int classes) {
  return {.attacks = options.eval,
          .norm = norm_from(options.eval_norm == "auto" ? options.norm : options.eval_norm),
          .eps = options.eval_eps > 0 ? options.eval_eps : options.eps,
          .alpha = options.eval_alpha,
          .steps = options.eval_attack_steps,
          .restarts = options.eval_restarts,
          .classes = classes};
}

[[nodiscard]] ReplicaOptions replica_of(const TrainOptions& options, const Plan& plan, const DatasetInfo& images,
                                        const Communicator& ranks, bool attack_reference, int scratch_images) {
  return {.backend = {.device = options.device,
                      .threads = choose_threads(options.threads, ranks.node_size()),
                      .node_rank = ranks.node_rank(),
                      .math = options.math,
                      .deterministic = options.deterministic,
                      .graphs = options.graphs == "on"},
          .network = options.network,
          .width = options.width,
          .activation = options.activation,
          .normalize = options.normalize,
          .granularity = granularity_from(options.granularity),
          .images = images,
          .micro_batch = plan.micro_batch,
          .attack_batch = options.attack_batch,
          .attack_storage = storage_from(options.attack_precision),
          .attack_stop = options.attack_stop >= 0,
          .attack_reference = attack_reference,
          .scratch_images = scratch_images,
          .training_batches = {plan.micro_batch, plan.last_micro_batch}};
}

/// Gradients of the attack that run in training mode; 0: it attacks the frozen network.
[[nodiscard]] int passes_in_training_mode(const TrainOptions& options, const Attack& attack, const Loss& loss) {
  const bool batch_statistics =
      options.attack_bn == "train" || (options.attack_bn == "auto" && prefers_batch_statistics(attack, loss));
  return batch_statistics ? attack.gradients_of_run() : 0;
}

/// The passes of a step in training mode, in the order in which they enter the running statistics.
[[nodiscard]] std::vector<int> entering_statistics(int attack_passes, const Loss& loss) {
  std::vector<int> of_loss = loss.entering();
  if (of_loss.empty()) {
    of_loss.resize(loss.passes().size());
    std::iota(of_loss.begin(), of_loss.end(), 0);
  }
  std::vector<int> all(static_cast<std::size_t>(attack_passes));
  std::iota(all.begin(), all.end(), 0);
  for (const int pass : of_loss) all.push_back(attack_passes + pass);
  return all;
}

/// Beside other work a message leaves as soon as it is complete; the last one, at least, is exposed. 2 MB take 18 ms at
/// 1 Gbit/s and 0.2 ms at 100 Gbit/s, far above the microseconds that a message costs by itself. It is a number and no
/// measurement, because the order of a sum over more than two ranks depends on it.
[[nodiscard]] std::int64_t bucket_of(const TrainOptions& options) {
  return options.bucket > 0 ? options.bucket : options.overlap ? 1 << 19 : 8 << 20;
}

/// Null: none.
[[nodiscard]] const SummationTree* address(const std::optional<const SummationTree>& order) {
  return order ? &*order : nullptr;
}

[[nodiscard]] bool keeps_own_statistics(const TrainOptions& options) { return options.bn_statistics == "local"; }

}  // namespace

Trainer::Trainer(Communicator& ranks, const TrainOptions& options) : Trainer(ranks, options, open_splits(options)) {}

Trainer::Trainer(Communicator& ranks, const TrainOptions& options, Splits splits)
    : ranks_(ranks),
      options_(options),
      splits_(std::move(splits)),
      plan_(options, mix_of(options, *splits_.train), ranks.size()),
      order_(plan_.ordered ? std::optional<const SummationTree>(std::in_place, plan_.micro_batches, ranks.size())
                           : std::nullopt),
      attack_(attack_of(options, splits_.train->info().classes)),
      unlabelled_(unlabelled_images(*splits_.train) > 0),
      loss_(losses().at(options.loss)({.lambda = options.lambda,
                                       .beta = options.beta,
                                       .smoothing = options.label_smoothing,
                                       .unlabelled = unlabelled_})),
      evaluation_attacks_(evaluation_of(options, splits_.train->info().classes)),
      replica_(replica_of(options, plan_, splits_.train->info(), ranks, goal_of(options, *loss_, *attack_).reference,
                          std::max(attack_->scratch_images(), evaluation_attacks_.scratch_images()))),
      timer_(replica_.backend()),
      attack_passes_(passes_in_training_mode(options, *attack_, *loss_)),
      statistics_(ranks, replica_.model(), entering_statistics(attack_passes_, *loss_), keeps_own_statistics(options),
                  address(order_)),
      source_(ranks, *splits_.train, options, plan_, *loss_, *attack_, replica_,
              attack_passes_ > 0 ? &statistics_ : nullptr, timer_),
      layers_(make_layer_sampling(ranks, options, plan_, replica_.model())),
      reducer_(make_reducer(replica_.model().parameters.gradients, options.codec, options.codec_transport,
                            options.aggregator)),
      codec_state_(ranks, replica_.backend(), *reducer_, options.steps_may_be_left_out()),
      learner_(
          replica_, *loss_, plan_.batch, statistics_, attack_passes_, timer_,
          [this](int segment) {
            layers_->weigh(segment);
            reducer_->ready(segment);
          },
          unlabelled_),
      update_(options, plan_, replica_.model(), statistics_),
      numbers_(ranks, replica_.backend(), replica_.model().parameters, learner_, statistics_, vote_,
               {.image = replica_.images().layout.elements(),
                .counts = {plan_.micro_batch, plan_.last_micro_batch},
                .micro_batches = plan_.batch / plan_.micro_batch,
                .gradients = order_ ? order_->places(ranks.rank()) : 1}),
      message_(ranks, replica_.backend(), address(order_)),
      stragglers_(ranks),
      assessment_(ranks, replica_, evaluation_attacks_,
                  plan_.ordered ? Evaluator::Dealing::batches : Evaluator::Dealing::samples) {
  for (MessagePart* part :
       std::initializer_list<MessagePart*>{&numbers_, &learner_, &source_, &vote_, layers_.get(), &statistics_})
    message_.add(*part);
  examples_ = &source_;
  if (options.awp_gamma > 0) {
    perturbation_ = make_perturbation();
    examples_ = perturbation_.get();
  }
  if (options.verify > 0) {
    recompute_ = std::make_unique<Recompute>(ranks, *splits_.train, options, plan_, *attack_, *loss_, attack_passes_,
                                             replica_, timer_);
    verification_ = std::make_unique<Verification>(ranks, options_, plan_, replica_, *recompute_);
  }
  if (options.average_bn == "rebuild")
    statistics_pass_ =
        std::make_unique<StatisticsPass>(ranks, *splits_.train, options, plan_, replica_, address(order_));
  check_ = std::make_unique<ReplicaCheck>(ranks, replica_.backend(), parts());
  replica_.model().initialize(options.seed);
  replica_.commit();

  // What is left of the device's memory takes the images.
  Backend& backend = replica_.backend();
  const auto resident = [&](const Dataset& images) {
    return fits_on_device(backend, images, options.resident) ? put_on_device(backend, images) : nullptr;
  };
  const std::uint8_t* pixels = resident(*splits_.train);
  resident_ = pixels != nullptr;
  source_.keep_on_device(pixels);
  if (recompute_) recompute_->keep_on_device(pixels);
  if (statistics_pass_) statistics_pass_->keep_on_device(pixels);
  assessment_.add("test", *splits_.test, resident(*splits_.test));
  if (splits_.holdout) assessment_.add("holdout", *splits_.holdout, resident(*splits_.holdout));
}

std::unique_ptr<Reducer> Trainer::make_reducer(float* gradients, const std::string& codec,
                                               const std::string& codec_transport, const std::string& aggregator) {
  Backend& backend = replica_.backend();
  const Parameters& parameters = replica_.model().parameters;
  const ReducerOptions reduction{.bucket_elements = bucket_of(options_),
                                 .overlap = options_.overlap,
                                 .mask_transport = options_.mask == "per_worker" ? options_.mask_transport : "",
                                 .codec_transport = codec_transport,
                                 .ended = [this](ReducerStage stage) { reducer_ended(stage); }};
  if (order_) return std::make_unique<TreeReducer>(backend, ranks_, parameters, gradients, *order_, reduction);
  return dat::make_reducer(
      backend, ranks_, parameters, gradients,
      codecs().at(codec)(
          backend, parameters,
          {.seed = options_.seed, .rank = ranks_.rank(), .factors = options_.codec_rank, .clip = options_.codec_clip}),
      aggregators().at(aggregator)(backend, parameters, {.ranks = ranks_.size()}), reduction);
}

std::unique_ptr<WeightPerturbation> Trainer::make_perturbation() {
  float* const gradients = replica_.backend().allocate_floats(replica_.model().parameters.size, "weight perturbation");
  return std::make_unique<WeightPerturbation>(
      ranks_, options_, plan_, *loss_, replica_, source_, *layers_, gradients,
      options_.awp == "global" ? make_reducer(gradients, "float32", "auto", "mean") : nullptr, address(order_), timer_);
}

void Trainer::start() {
  source_.start(step_);
  timer_.start();
}

const StepRecord& Trainer::step(bool stop) {
  const std::int64_t weight_gradients = replica_.backend().counters.conv_backward_weights;
  vote_.wish = stop;
  stragglers_.begin();
  timer_.lap(Phase::other);
  const std::int64_t given = ranks_.bytes_given();
  const ActiveSet& active = layers_->draw(step_);
  drawn_bytes_ = ranks_.bytes_given() - given;
  around_reducer_ = Phase::select;
  codec_state_.keep();
  reducer_->begin(layers_->brought(), step_);
  timer_.lap(Phase::select);

  around_reducer_ = Phase::backward;
  examples_->begin(step_);
  if (verification_) verification_->begin(step_);
  numbers_.begin();
  while (const Examples* examples = examples_->next()) {
    numbers_.look_at_images(examples->attacked, examples->count);
    float* const place = reducer_->place(examples->unit);
    learner_.train(*examples, active, place);
    if (verification_) verification_->keep(*examples, place, active);
    examples_->trained();
  }
  numbers_.look_at_own(reducer_->own(), active);
  if (step_ + 1 < plan_.steps) examples_->look_ahead(step_ + 1);
  reducer_->finish();
  timer_.end_sum(reducer_->seconds_under_way());
  numbers_.look_at_sum(layers_->summed());
  message_.sum();
  timer_.lap(Phase::exposed);

  layers_->require_agreement();
  skipped_.clear();
  if (const BadNumbers* bad = numbers_.agreed()) {
    skip(*bad);
  } else if (verified()) {
    setbacks_.in_a_row = 0;
    layers_->learn(numbers_.squares());
    timer_.lap(Phase::select);
    update_.apply(layers_->updated(), step_, setbacks_.lr_factor, perturbation_.get());
  }
  timer_.lap(Phase::update);
  ++step_;
  stragglers_.end();
  return record(replica_.backend().counters.conv_backward_weights - weight_gradients);
}

void Trainer::reducer_ended(ReducerStage stage) {
  switch (stage) {
    case ReducerStage::outside:
      return timer_.lap(around_reducer_);
    case ReducerStage::encode:
      return timer_.lap(Phase::encode);
    case ReducerStage::communicate:
      return timer_.lap(Phase::exposed);
    case ReducerStage::decode:
      return timer_.lap(Phase::decode);
  }
}

/// Whether the step's gradient may be used. Error(integrity).
bool Trainer::verified() {
  if (!verification_) return true;
  const std::optional<Verification::Finding> finding = verification_->verify(learner_, layers_->active());
  timer_.lap(Phase::other);
  if (!finding) return true;
  require(
      options_.on_corruption == "repair", ExitCode::integrity, finding->record.text,
      "; the weights are those of the step before, and the last checkpoint is good: run the same command again, and "
      "suspect the node if it returns");
  corruptions_.push_back(finding->record);
  if (!finding->usable) leave_out();
  return finding->usable;
}

void Trainer::skip(const BadNumbers& bad) {
  // Before a learning rate is blamed: a flipped bit makes a number as large as that.
  const std::size_t before = corruptions_.size();
  if (options_.check_every > 0) check_replicas();
  if (corruptions_.size() > before) return leave_out();
  skipped_ = "in step " + std::to_string(step_ + 1) + " (epoch " + std::to_string(plan_.epoch_of(step_) + 1) + ") " +
             bad.text(model().parameters);
  if (bad.where == BadNumbers::Where::sum && options_.codec != "float32") skipped_ += ", by --codec " + options_.codec;
  require(setbacks_.in_a_row<options_.max_bad_steps, ExitCode::numerical, skipped_, setbacks_.in_a_row> 0
              ? ", after " + std::to_string(setbacks_.in_a_row) + " skipped in a row"
              : "",
          "; the weights are those of the step before: lower --lr or raise --warmup-epochs");
  ++setbacks_.in_a_row;
  leave_out();
}

/// Nothing of the step stays but the draw of layers, into which none of its numbers has gone.
void Trainer::leave_out() {
  codec_state_.put_back();
  examples_->take_back();
}

/// Of the step that has been done last.
const StepRecord& Trainer::record(std::int64_t weight_gradients) {
  record_.step = step_;
  record_.epoch = plan_.epoch_of(step_ - 1);
  record_.steps_per_epoch = plan_.steps_per_epoch;
  record_.lr = update_.lr(step_ - 1) * setbacks_.lr_factor;
  record_.seconds = timer_.end_step();
  record_.wall_time = timer_.wall_time();
  const Learner::Result &attacked = learner_.of(Loss::Images::attacked), &clean = learner_.of(Loss::Images::clean);
  record_.images = learner_.images();
  record_.loss_adv = attacked.loss;
  record_.acc_adv = attacked.accuracy;
  record_.loss_clean = clean.loss;
  record_.acc_clean = clean.accuracy;
  record_.attack_passes = source_.attack_passes();
  // Each micro-batch computes the same ones.
  record_.weight_gradients =
      plan_.ordered ? weight_gradients / plan_.micro_batches_of(ranks_.rank()) * plan_.micro_batches : weight_gradients;
  record_.active_elements = reducer_->elements();
  record_.bytes_sent = reducer_->bytes_sent();
  record_.bytes_statistics = message_.bytes_sent() + examples_->bytes_sent() + drawn_bytes_ +
                             (verification_ ? verification_->bytes_sent() : 0);
  record_.scale = &layers_->active().scale;
  record_.p = &layers_->probabilities();
  record_.norms = layers_->norms();
  bytes_ += static_cast<double>(record_.bytes_sent + record_.bytes_statistics);
  return record_;
}

std::vector<EvaluationRecord> Trainer::evaluate() {
  const CallLabel label("evaluation");
  timer_.lap(Phase::other);
  const double time = timer_.wall_time();
  RootStatistics root(ranks_, replica_.model(), statistics_.local());
  std::vector<EvaluationRecord> records = assessment_.run(options_.seed);
  if (WeightAverage* average = update_.average()) {
    std::vector<EvaluationRecord> averaged = records;  // right until averaging begins
    if (average->has_begun()) {
      complete_average();
      average->exchange();
      averaged = assessment_.run(options_.seed);
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
  for (Stateful* part : parts()) part->save(checkpoint);
  checkpoint.integers["step"] = step_;
  checkpoint.integers["steps_per_epoch"] = plan_.steps_per_epoch;
  checkpoint.integers["ranks"] = ranks_.size();
  checkpoint.integers["threads"] = choose_threads(options_.threads, ranks_.node_size());
  checkpoint.integers["train_images"] = splits_.train->size();
  checkpoint.integers["image_size"] = splits_.train->info().size;
  checkpoint.integers["image_channels"] = splits_.train->info().channels;
  std::string& classes = checkpoint.texts["class_names"];
  for (const std::string& name : splits_.train->info().class_names) classes += name + "\n";
  return checkpoint;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  require(integer_of(checkpoint, "train_images") == splits_.train->size(), ExitCode::usage,
          "the checkpoint was trained on ", integer_of(checkpoint, "train_images"),
          " images, --data and --limit-train give ", splits_.train->size());
  step_ = integer_of(checkpoint, "step");
  // With another number of ranks an epoch has another number of steps: go on at the same place of the epoch.
  const std::int64_t now = plan_.steps_per_epoch, then = integer_of(checkpoint, "steps_per_epoch");
  if (then != now) step_ = step_ / then * now + (step_ % then) * now / then;
  for (Stateful* part : parts()) part->restore(checkpoint);
}

void Trainer::share_state() {
  const CallLabel label("state of rank 0");
  layers_->share_costs([this] {
    return measure_layer_seconds(replica_, plan_, splits_.train->info(), static_cast<int>(loss_->passes().size()),
                                 ranks_);
  });
  for (Stateful* part : parts()) part->share(ranks_);
  ranks_.broadcast(&step_, sizeof step_);
}

void Trainer::set_back(const Setbacks& before, double lr_factor) {
  setbacks_.in_a_row = 0;
  setbacks_.rollbacks = before.rollbacks + 1;
  setbacks_.lr_factor = before.lr_factor * lr_factor;
}

std::int64_t Trainer::checkpoint_bytes() const {
  return static_cast<std::int64_t>(sizeof(float)) *
             (model().parameters.size + 2 * model().graph.statistics + update_.state_size()) +
         codec_state_.bytes() + source_.warm_start_bytes() + source_.begun_bytes();
}

void Trainer::check_replicas() {
  for (CorruptionRecord& record : check_->check(step_, options_.on_corruption == "repair"))
    corruptions_.push_back(std::move(record));
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
  all.bucket = bucket_of(options_);
  if (plan_.ordered) {
    all.total_batch = plan_.total_batch;
    all.batch = 0;
  }
  all.device = model().backend.device().kind == DeviceKind::cpu ? "cpu" : "cuda";
  all.threads = choose_threads(options_.threads, ranks_.node_size());
  all.resident = resident_ ? "on" : "off";
  return all;
}

}  // namespace dat
