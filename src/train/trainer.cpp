#include "train/trainer.hpp"

#include <omp.h>
#include <sched.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "gradients.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// The set that a run without --data trains on: small enough for a first try on a few cores.
[[nodiscard]] SyntheticOptions built_in_set(const TrainOptions& options) {
  return {.classes = 10, .size = 16, .train = 1024, .test = 256, .seed = options.seed};
}

enum Message : std::uint8_t {
  kLossAdv,
  kCorrectAdv,
  kLossClean,
  kCorrectClean,
  kImages,
  kPasses,
  kStop,
  kWrongDraws,
  kScalars
};

}  // namespace

std::unique_ptr<Dataset> open_split(const TrainOptions& options, const std::string& split) {
  const std::string of = split == "test" ? "test" : "train";
  const std::int64_t limit = of == "test" ? options.limit_test : options.limit_train;
  std::unique_ptr<Dataset> whole;
  if (options.data.empty()) {
    SyntheticOptions set = built_in_set(options);
    if (limit > 0) (of == "test" ? set.test : set.train) = std::min(of == "test" ? set.test : set.train, limit);
    whole = synthetic_dataset(set, of);
  } else {
    whole = open_dataset(options.data, of, limit);
  }
  if (of == "test" || options.holdout == 0) return whole;
  return held_out(std::move(whole), options.holdout, options.seed, split == "train");
}

int choose_threads(int wanted, int ranks_on_node) {
  if (wanted > 0) return wanted;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int mine = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  const int all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  // Bound to some cores: they are this rank's alone. Not bound: all ranks of the node share what there is.
  return std::max(1, mine < all ? mine : all / std::max(1, ranks_on_node));
}

/// The attack's view of the network in training mode: batch statistics, which also enter the running ones.
class Trainer::BatchObjective final : public Objective {
 public:
  explicit BatchObjective(Trainer& trainer) : trainer_(trainer) {
    device = trainer.backend_->device();
    layout = trainer.images_->layout;
    clean = trainer.images_->clean;
    x_adv = trainer.images_->x_adv;
    eta = trainer.images_->eta;
    dx = trainer.images_->dx;
    sample_ids = trainer.images_->ids;
    loss_ = trainer.backend_->allocate_floats(trainer.images_->capacity, "losses");
  }
  void prepare(std::uint64_t key, std::uint32_t when, float weight) {
    n = trainer_.images_->count;
    start = nullptr;
    seed = key;
    time = when;
    pass_ = 0;
    weight_ = weight;
  }
  void gradient() override {
    passes += n;
    TrainingProgram& program = trainer_.program(n);
    program.forward(x_adv);
    cross_entropy(*trainer_.backend_, program.logits(), trainer_.images_->labels, n, trainer_.classes_, loss_, loss_,
                  program.dlogits(), 1.0F);
    program.backward(x_adv, {.input = trainer_.images_->dx});
    trainer_.add_statistics(program, pass_++, weight_, trainer_.first_micro_batch_);
  }

 private:
  Trainer& trainer_;
  float* loss_;
  int pass_ = 0;
  float weight_ = 1;
};

Trainer::Trainer(Communicator& world, const TrainOptions& options)
    : world_(world),
      options_(options),
      evaluation_attacks_({.attacks = options.eval,
                           .eps = options.eval_eps > 0 ? options.eval_eps : options.eps,
                           .alpha = options.eval_alpha,
                           .steps = options.eval_attack_steps,
                           .restarts = options.eval_restarts}) {
  train_ = open_split(options, "train");
  test_ = open_split(options, "test");
  if (options.holdout > 0) held_out_ = open_split(options, "holdout");
  const DatasetInfo& info = train_->info();
  require(test_->info().size == info.size && test_->info().channels == info.channels &&
              test_->info().classes <= info.classes,
          ExitCode::data, "the test images do not fit the training images");
  classes_ = info.classes;

  backend_ = make_backend({.device = options.device,
                           .threads = choose_threads(options.threads, world.node_size()),
                           .node_rank = world.node_rank(),
                           .math = options.math,
                           .deterministic = options.deterministic});
  model_ = std::make_unique<Model>(
      *backend_,
      networks().at(options.network)(
          {.width = options.width, .size = info.size, .channels = info.channels, .classes = info.classes}),
      granularity_from(options.granularity));
  model_->initialize(options.seed);

  const EpochPlan plan(train_->size(), world.size(), options.batch, options.micro_batch);
  batch_asked_ = options.batch;
  options_.batch = plan.batch;
  micro_batch_ = plan.micro_batch();
  steps_per_epoch_ = plan.steps();
  warmup_steps_ = options.warmup_epochs * steps_per_epoch_;
  total_steps_ = warmup_steps_ + options.epochs * steps_per_epoch_;
  if (options.max_steps > 0) total_steps_ = std::min(total_steps_, options.max_steps);

  images_ = std::make_unique<Images>(*backend_, info, micro_batch_);
  const DType storage = storage_from(options.attack_precision);
  const bool stops = options.attack_stop >= 0;
  frozen_ =
      FrozenProgram::of_sizes(*model_, stops ? early_stop_sizes(micro_batch_) : std::vector{micro_batch_}, storage);
  if (storage != DType::f32) evaluated_ = std::make_unique<FrozenProgram>(*model_, micro_batch_);
  training_[micro_batch_] = std::make_unique<TrainingProgram>(*model_, micro_batch_);
  if (const int last = plan.last_batch() / plan.micro_batches; last != micro_batch_)
    training_[last] = std::make_unique<TrainingProgram>(*model_, last);

  const AttackOptions attack{.eps = options.eps,
                             .alpha = options.alpha,
                             .steps = options.attack_steps - (options.attack_reuse ? 1 : 0),
                             .stop = options.attack_stop};
  attack_ = attacks().at(options.attack)(attack);
  const bool batch_statistics =
      options.attack_bn == "train" || (options.attack_bn == "auto" && attack_->prefers_batch_statistics());
  if (stops)
    objective_ = std::make_unique<EarlyStopObjective>(*images_, frozen_, classes_);
  else
    objective_ = std::make_unique<FrozenObjective>(*images_, *frozen_.front(), classes_);
  if (evaluated_) evaluation_objective_ = std::make_unique<FrozenObjective>(*images_, *evaluated_, classes_);
  if (batch_statistics) {
    batch_objective_ = std::make_unique<BatchObjective>(*this);
    attack_passes_ = attack_->gradient_evaluations();
  }
  passes_ = attack_passes_ + 1 + (options.lambda > 0 ? 1 : 0);
  if (options.warm_start > 0)
    warm_start_ = std::make_unique<WarmStart>(world, *backend_,
                                              WarmStartOptions{.samples = train_->size(),
                                                               .layout = images_->layout,
                                                               .micro_batch = micro_batch_,
                                                               .eps = options.eps,
                                                               .reset_steps = options.warm_start * steps_per_epoch_});

  const int layers = model_->parameters.layers();
  budget_ = options.budget > 0 ? options.budget : layers * 40.0 / 54.0;
  selector_ = selectors().at(options.selector)({.layers = layers,
                                                .budget = budget_,
                                                .p_min = options.p_min,
                                                .bandit_loss = options.bandit_loss,
                                                .bandit_rate = options.bandit_rate});
  draw_period_ = options.resample == "step"    ? 1
                 : options.resample == "epoch" ? steps_per_epoch_
                                               : std::stoll(options.resample);
  Parameters& parameters = model_->parameters;
  reducer_ = std::make_unique<GradientReducer>(
      *backend_, world, parameters, parameters.gradients,
      codecs().at(options.codec)(*backend_, parameters, {.seed = options.seed, .rank = world.rank()}),
      aggregators().at(options.aggregator)(*backend_, parameters, {.ranks = world.size()}),
      ReducerOptions{.bucket_elements = options.bucket, .overlap = options.overlap});
  ready_ = [this](int segment) { reducer_->ready(segment); };
  optimizer_ = optimizers().at(options.optimizer)(*backend_, model_->parameters,
                                                  {.momentum = options.momentum,
                                                   .weight_decay = options.weight_decay,
                                                   .clamp_low = options.clamp_low,
                                                   .clamp_high = options.clamp_high,
                                                   .importance = options.importance});
  schedule_ = schedules().at(options.schedule)({.lr = options.lr,
                                                .steps_per_epoch = steps_per_epoch_,
                                                .warmup_epochs = options.warmup_epochs,
                                                .epochs = options.epochs,
                                                .milestones = options.milestones,
                                                .decay = options.lr_decay,
                                                .total_steps = options.max_steps});
  const auto doubles = [&](std::int64_t count, bool pinned) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(double);
    return static_cast<double*>(pinned ? backend_->allocate_pinned(bytes, "gradient norms")
                                       : backend_->allocate(bytes, "gradient norms"));
  };
  const auto pinned_floats = [&](std::int64_t count) {
    return static_cast<float*>(backend_->allocate_pinned(static_cast<std::size_t>(count) * sizeof(float), "results"));
  };
  chunks_ = std::make_unique<ChunkTable>(*backend_, model_->parameters);
  const auto sums = static_cast<std::int64_t>(model_->parameters.segments.size()) * kSums;
  partial_ = doubles(chunks_->largest() * kSums, false);
  sums_ = doubles(sums, false);
  host_sums_ = doubles(sums, true);
  active_ = repeated_ = ActiveSet::all(layers);
  p_.assign(static_cast<std::size_t>(layers), 1.0);
  norms_.assign(static_cast<std::size_t>(layers), std::numeric_limits<double>::quiet_NaN());

  const auto batch = static_cast<std::int64_t>(options_.batch);
  losses_ = backend_->allocate_floats(4 * batch, "losses");
  corrects_ = losses_ + 2 * batch;
  host_losses_ = pinned_floats(4 * batch);
  statistics_count_ = 2 * model_->graph.statistics * passes_;
  statistics_ = backend_->allocate_floats(statistics_count_, "batch statistics");
  host_statistics_ = pinned_floats(statistics_count_);
  message_.resize(kScalars + (options.bn_statistics == "average" ? static_cast<std::size_t>(statistics_count_) : 0));
  backend_->commit_workspace();

  // What is left of the device's memory takes the images.
  const auto resident = [&](const Dataset& dataset) {
    return fits_on_device(*backend_, dataset, options.resident) ? put_on_device(*backend_, dataset) : nullptr;
  };
  all_images_ = resident(*train_);
  FrozenObjective& judged = evaluated_ ? *evaluation_objective_ : *objective_;
  evaluators_.emplace_back("test", std::make_unique<Evaluator>(world, *test_, resident(*test_), *images_, judged));
  if (held_out_)
    evaluators_.emplace_back("holdout",
                             std::make_unique<Evaluator>(world, *held_out_, resident(*held_out_), *images_, judged));
  record_.scale = &active_.scale;
  record_.p = &p_;
}

Trainer::~Trainer() = default;

void Trainer::start() {
  loader_ = std::make_unique<Loader>(*train_, world_.size(), world_.rank(),
                                     LoaderOptions{.batch = options_.batch,
                                                   .micro_batch = micro_batch_,
                                                   .augment = options_.augment,
                                                   .pixels = all_images_ == nullptr,
                                                   .everyone = warm_start_ != nullptr,
                                                   .warmup_epochs = options_.warmup_epochs,
                                                   .seed = options_.seed,
                                                   .first_step = step_});
  started_ = std::chrono::steady_clock::now();
  laps_.reserve(Backend::kStamps);
}

double Trainer::wall_time() const {
  return earlier_seconds_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

void Trainer::lap(int phase) {
  if (laps_.size() < static_cast<std::size_t>(Backend::kStamps)) laps_.push_back({phase, backend_->stamp()});
}

void Trainer::collect(std::array<double, kPhases>& seconds) {
  auto next = laps_.begin();
  for (; next != laps_.end() && backend_->passed(next->stamp); ++next) {
    if (next->phase >= 0) {
      const double lap = backend_->seconds(last_lap_, next->stamp);
      seconds[static_cast<std::size_t>(next->phase)] += lap;
      seconds_[static_cast<std::size_t>(next->phase)] += lap;
      if (next->phase == static_cast<int>(Phase::reduce)) communication_seconds_ += lap;
    }
    last_lap_ = next->stamp;
  }
  laps_.erase(laps_.begin(), next);
}

void Trainer::book(Phase phase, double seconds) {
  carried_[static_cast<std::size_t>(phase)] += seconds;
  seconds_[static_cast<std::size_t>(phase)] += seconds;
}

const StepRecord& Trainer::step(bool stop) {
  record_.seconds = carried_;
  carried_ = {};
  lap(-1);
  record_.epoch = static_cast<int>(step_ / steps_per_epoch_);
  record_.steps_per_epoch = steps_per_epoch_;
  record_.lr = schedule_->lr(step_);
  const std::int64_t weight_gradients = backend_->counters.conv_backward_weights;

  const HostBatch& batch = loader_->next();
  lap(Phase::data);
  choose_layers();
  reducer_->begin(active_, step_);
  lap(Phase::select);

  first_micro_batch_ = true;
  Objective& objective = attacked();
  const std::int64_t passes = objective.passes;
  std::int64_t bytes_perturbations = 0;
  const int size = batch.count / (options_.batch / micro_batch_);  // of each micro-batch
  for (int first = 0; first < batch.count; first += size) {
    images_->load(batch, first, size, all_images_);
    prepare_attack(batch.count);
    if (warm_start_) bytes_perturbations += warm_start_->load(objective, images_->crops, batch, first, step_);
    lap(Phase::data);
    attack_->perturb(objective);
    if (warm_start_ && !options_.attack_reuse) warm_start_->keep(objective, images_->crops);
    lap(Phase::attack);
    const bool last = first + size == batch.count, clean = options_.lambda > 0;
    TrainingProgram& network = program(size);
    train_pass(network, images_->x_adv, first, batch.count, 0, 1.0F, last && !clean);
    if (options_.attack_reuse) {
      attack_->step(objective);
      warm_start_->keep(objective, images_->crops);
    }
    if (clean) train_pass(network, images_->clean, first, batch.count, 1, static_cast<float>(options_.lambda), last);
    first_micro_batch_ = false;
    lap(Phase::train);
  }

  reducer_->finish();
  share_statistics(batch, objective.passes - passes, stop);
  lap(Phase::reduce);
  require(message_[kWrongDraws] == 0, ExitCode::integrity, "in step ", step_ + 1, ", ", message_[kWrongDraws],
          " of the ", world_.size(),
          " ranks draw other layers than rank 0 from its probabilities; the weights are those of the step "
          "before, and the last checkpoint is good: start all ranks with the same options, and suspect a node");
  const double loss = record_.loss_adv + (options_.lambda > 0 ? record_.loss_clean : 0.0);
  require(std::isfinite(loss), ExitCode::numerical, "the loss of step ", step_ + 1, " (epoch ", record_.epoch + 1,
          ") is not finite; the weights are those of the step before: lower --lr or raise --warmup-epochs");

  learn();
  lap(Phase::select);
  optimizer_->step(active_, record_.lr);
  update_running_statistics();
  lap(Phase::update);
  collect(record_.seconds);

  record_.step = ++step_;
  record_.wall_time = wall_time();
  record_.bytes_sent = reducer_->bytes_sent();
  record_.active_elements = reducer_->elements();
  record_.bytes_statistics =
      world_.size() > 1 ? static_cast<std::int64_t>(message_.size() * sizeof(double)) + bytes_perturbations : 0;
  record_.weight_gradients = backend_->counters.conv_backward_weights - weight_gradients;
  bytes_ += static_cast<double>(record_.bytes_sent + record_.bytes_statistics);
  return record_;
}

void Trainer::prepare_attack(int batch) {
  const auto epoch = static_cast<std::uint32_t>(record_.epoch);
  if (batch_objective_)
    batch_objective_->prepare(options_.seed, epoch, static_cast<float>(images_->count) / static_cast<float>(batch));
  else
    objective_->prepare(options_.seed, Purpose::attack_start, epoch);
}

bool Trainer::draw_due(std::int64_t step) const {
  return step >= warmup_steps_ && (step - warmup_steps_) % draw_period_ == 0;
}

void Trainer::choose_layers() {
  wrong_draw_ = false;
  if (!draw_due(step_)) return;
  const auto number = static_cast<std::uint64_t>(step_);
  if (world_.root()) {
    p_ = selector_->probabilities();
    draw_layers(options_.seed, number, p_, active_);
  }
  world_.broadcast(p_.data(), p_.size() * sizeof(double));
  world_.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
  if (world_.root()) return;
  // The others repeat the draw. The step's second message brings what they find to all.
  wrong_draw_ = !(probability_of_any(p_) > 0);
  if (wrong_draw_) return;
  draw_layers(options_.seed, number, p_, repeated_);
  wrong_draw_ = repeated_.scale != active_.scale;
}

void Trainer::train_pass(TrainingProgram& network, const float* x, int first, int batch, int pass, float weight,
                         bool last) {
  network.forward(x);
  const std::int64_t at = std::int64_t{pass} * options_.batch + first;
  cross_entropy(*backend_, network.logits(), images_->labels, network.n(), classes_, losses_ + at, corrects_ + at,
                network.dlogits(), weight / static_cast<float>(batch));
  add_statistics(network, attack_passes_ + pass, static_cast<float>(network.n()) / static_cast<float>(batch),
                 first_micro_batch_);
  network.backward(x, {.weights = &active_,
                       .accumulate = !(first_micro_batch_ && pass == 0),
                       .input = options_.attack_reuse && pass == 0 ? images_->dx : nullptr,
                       .ready = last ? &ready_ : nullptr});
}

void Trainer::add_statistics(const TrainingProgram& network, int pass, float weight, bool first) {
  const std::int64_t count = 2 * model_->graph.statistics;
  each(backend_->device(), count, kernels::Scale{network.statistics(), statistics_ + count * pass, weight, !first});
}

Objective& Trainer::attacked() {
  if (batch_objective_) return *batch_objective_;
  return *objective_;
}

std::vector<int> Trainer::attack_sizes() const {
  std::vector<int> sizes;
  for (const auto& program : frozen_) sizes.push_back(program->n());
  return sizes;
}

void Trainer::share_statistics(const HostBatch& batch, std::int64_t passes, bool stop) {
  // All that the host needs to know of this step, with one wait.
  if (learns()) {
    sum(backend_->device(), chunks_->select(active_), kernels::SquaredNorm{model_->parameters.gradients}, partial_,
        sums_);
    (void)backend_->fetch(host_sums_, sums_, model_->parameters.segments.size() * kSums * sizeof(double));
  }
  (void)backend_->fetch(host_losses_, losses_, 4 * static_cast<std::size_t>(options_.batch) * sizeof(float));
  backend_->wait_for(
      backend_->fetch(host_statistics_, statistics_, static_cast<std::size_t>(statistics_count_) * sizeof(float)));

  std::fill(message_.begin(), message_.begin() + kScalars, 0.0);
  const auto total = [&](const float* device, double& all) {
    const float* host = host_losses_ + (device - losses_);
    for (int i = 0; i < batch.count; ++i) all += double(host[i]);
  };
  total(losses_, message_[kLossAdv]);
  total(corrects_, message_[kCorrectAdv]);
  if (options_.lambda > 0) {
    total(losses_ + options_.batch, message_[kLossClean]);
    total(corrects_ + options_.batch, message_[kCorrectClean]);
  }
  message_[kImages] = batch.count;
  message_[kPasses] = static_cast<double>(passes);
  message_[kStop] = stop ? 1 : 0;
  message_[kWrongDraws] = wrong_draw_ ? 1 : 0;
  std::copy_n(host_statistics_, message_.size() - kScalars, message_.begin() + kScalars);
  world_.sum(message_.data(), static_cast<std::int64_t>(message_.size()));
  for (std::size_t i = kScalars; i < message_.size(); ++i)
    host_statistics_[i - kScalars] = static_cast<float>(message_[i] / world_.size());
  const double images = message_[kImages], nan = std::numeric_limits<double>::quiet_NaN();
  record_.images = static_cast<std::int64_t>(images);
  record_.attack_passes = static_cast<std::int64_t>(message_[kPasses]);
  record_.loss_adv = message_[kLossAdv] / images;
  record_.acc_adv = message_[kCorrectAdv] / images;
  record_.loss_clean = options_.lambda > 0 ? message_[kLossClean] / images : nan;
  record_.acc_clean = options_.lambda > 0 ? message_[kCorrectClean] / images : nan;
  stop_agreed_ = message_[kStop] > 0;
}

bool Trainer::learns() const {
  // Once per draw, from the last gradients that it produced.
  return world_.root() && draw_due(step_ + 1) && step_ >= warmup_steps_;
}

void Trainer::learn() {
  record_.norms = nullptr;
  if (!learns()) return;
  const Parameters& p = model_->parameters;
  std::fill(norms_.begin(), norms_.end(), 0.0);
  for (std::size_t k = 0; k < p.segments.size(); ++k)
    norms_[static_cast<std::size_t>(p.segments[k].layer)] += host_sums_[k * kSums];
  for (double& norm : norms_) norm = std::sqrt(norm);
  selector_->learn(active_, norms_);
  record_.norms = &norms_;
}

void Trainer::update_running_statistics() {
  const std::int64_t count = model_->graph.statistics;
  backend_->send(statistics_, host_statistics_, static_cast<std::size_t>(statistics_count_) * sizeof(float));
  for (int pass = 0; pass < passes_; ++pass) {
    const float* mean = statistics_ + 2 * count * pass;
    each(backend_->device(), count, kernels::RunningStatistic{mean, model_->running_mean, Model::kMomentum});
    each(backend_->device(), count,
         kernels::RunningStatistic{mean + count, model_->running_variance, Model::kMomentum});
  }
  model_->batches_tracked += passes_;
  ++model_->parameters.version;
}

std::vector<EvaluationRecord> Trainer::evaluate() {
  std::vector<EvaluationRecord> all;
  const double time = wall_time();
  // Where every rank has running statistics of its own, rank 0's count: all evaluate one network.
  const bool local = options_.bn_statistics == "local" && world_.size() > 1;
  const std::vector<float> own = local ? running_statistics() : std::vector<float>();
  if (local) {
    std::vector<float> root = own;
    world_.broadcast(root.data(), root.size() * sizeof(float));
    set_running_statistics(root);
  }
  for (const auto& [split, evaluator] : evaluators_) {
    const EvaluationResult result = evaluator->run(evaluation_attacks_, options_.seed);
    book(Phase::evaluate, result.seconds);
    for (EvaluationRecord& record : result.records(evaluation_attacks_)) {
      record.step = step_;
      record.epoch = static_cast<int>(step_ / steps_per_epoch_);
      record.wall_time = time;
      record.split = split;
      all.push_back(record);
    }
  }
  if (local) set_running_statistics(own);
  return all;
}

TrainOptions Trainer::resolved() const {
  TrainOptions all = options_;
  all.budget = budget_;
  all.batch = batch_asked_;  // where it is cut to a rank's share, another number of ranks cuts it otherwise
  all.device = backend_->device().kind == DeviceKind::cpu ? "cpu" : "cuda";
  all.threads = choose_threads(options_.threads, world_.node_size());
  all.resident = all_images_ != nullptr ? "on" : "off";
  return all;
}

std::uint64_t Trainer::replica_hash() const {
  const auto hash = [](const void* data, std::size_t bytes, std::uint64_t seed) {
    return XXH3_64bits_withSeed(data, bytes, seed);
  };
  const auto device_hash = [&](const float* data, std::int64_t count, std::uint64_t seed) {
    if (backend_->device().kind == DeviceKind::cpu)
      return hash(data, static_cast<std::size_t>(count) * sizeof(float), seed);
    std::vector<float> host(static_cast<std::size_t>(count));
    backend_->copy_to_host(host.data(), data, host.size() * sizeof(float));
    return hash(host.data(), host.size() * sizeof(float), seed);
  };
  std::uint64_t value = device_hash(model_->parameters.values, model_->parameters.size, 0);
  for (const Optimizer::State& state : optimizer_->state())
    value = device_hash(state.data, model_->parameters.size, value);
  if (options_.bn_statistics == "average") {
    value = device_hash(model_->running_mean, model_->graph.statistics, value);
    value = device_hash(model_->running_variance, model_->graph.statistics, value);
  }
  value = hash(p_.data(), p_.size() * sizeof(double), value);
  return hash(active_.scale.data(), active_.scale.size() * sizeof(float), value);
}

void Trainer::check_replicas() {
  require(world_.agree(replica_hash()), ExitCode::integrity, "after step ", step_,
          " the ranks hold different weights, optimizer state, statistics or active layers; the last checkpoint is "
          "good: run "
          "the same command again, and suspect a node or a library if it returns");
}

RankRecord Trainer::gather_times() {
  backend_->wait();
  collect(carried_);
  std::vector<double> mine(seconds_.begin(), seconds_.end());
  mine.push_back(bytes_);
  const std::vector<double> all = world_.gather(mine);
  RankRecord record;
  record.step = step_;
  for (std::size_t at = 0; at < all.size(); at += kPhases + 1) {
    record.seconds.insert(record.seconds.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                          all.begin() + static_cast<std::ptrdiff_t>(at + kPhases));
    record.bytes.push_back(all[at + kPhases]);
  }
  seconds_ = {};
  bytes_ = 0;
  return record;
}

std::string Trainer::weights_hash() const {
  std::vector<float> values(static_cast<std::size_t>(model_->parameters.size));
  backend_->copy_to_host(values.data(), model_->parameters.values, values.size() * sizeof(float));
  const XXH128_hash_t hash = XXH3_128bits(values.data(), values.size() * sizeof(float));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace dat
