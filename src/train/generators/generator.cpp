#include "train/generators/generator.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "copy_bits.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/replica_of.hpp"
#include "train/plan/role.hpp"

namespace dat {

namespace {

[[nodiscard]] LoaderOptions reading(const TrainOptions& options, const Plan& plan, bool pixels, int threads) {
  LoaderOptions loading = loader_options(options, plan, threads);
  loading.pixels = pixels;
  return loading;
}

/// Returns whether weights change within an attack.
[[nodiscard]] bool in_parts(const Staleness& staleness) { return staleness.refresh && staleness.versions != 0; }

}  // namespace

void require_work(const TrainOptions& options, const Plan& plan) {
  const std::int64_t most = std::int64_t{plan.ordered ? 1 : plan.ranks} * plan.micro_batches * (options.staleness + 1);
  require(options.generators <= most, ExitCode::usage, "--generators ", options.generators, " are more than the ", most,
          " micro-batches that can be under way: those of ", options.staleness + 1,
          options.staleness == 0 ? " step" : " steps", "; take fewer, a smaller --micro-batch or more --staleness");
}

std::int64_t generator_memory(const TrainOptions& options, const Plan& plan, const Dataset& images,
                              Communicator& ranks) {
  const StepMethod method(options, images);
  Replica replica(replica_of(options, plan, images.info(), ranks, method, Role::generator));
  replica.commit();
  std::int64_t total = 0;
  for (const Backend::Allocation& one : replica.backend().allocations()) total += static_cast<std::int64_t>(one.bytes);
  const Staleness staleness = staleness_of(options, *method.attacks.last().attack);
  total += (staleness.versions + 1) * HeldWeights::memory(replica.model());
  if (in_parts(staleness))
    total += std::int64_t{plan.ranks} * (staleness.versions + 1) * plan.most_units() * plan.micro_batch *
             replica.images().layout.elements() * std::int64_t{sizeof(float)};
  return total;
}

Answers::Answers(Communicator& launch, Backend& backend, std::size_t most) : launch_(launch) {
  static_cast<void>(launch_.move_on_beside());  // else answers and versions move on less often
  for (int k = 0; k < kUnderWay; ++k) all_.push_back({{backend, most, "attacked images"}});
}

AnswerPacket& Answers::packet() {
  const auto find = [&] {
    const auto found = std::ranges::find_if(all_, [](One& one) { return one.request.test(); });
    next_ = static_cast<std::size_t>(found - all_.begin());
    return found != all_.end();
  };
  const CallLabel label("answers to be taken");
  launch_.wait_for_message(0, find);
  return all_[next_].packet;
}

void Answers::send(int trainer, std::size_t behind) {
  One& one = all_[next_];
  one.packet.seal(behind);
  one.request = launch_.start_send(one.packet.data(), AnswerPacket::bytes(behind), trainer, kAnswerTag);
}

void Answers::finish() {
  for (One& one : all_) one.request.wait();
}

Generator::Generator(Communicator& launch, const TrainOptions& options)
    : launch_(launch),
      splits_(open_splits(options, true)),
      trainers_(trainers_of(launch.size(), options)),
      own_trainer_((launch.rank() - trainers_) % trainers_),
      plan_(options, mix_of(options, *splits_.train, trainers_), trainers_),
      method_(options, *splits_.train),
      replica_(replica_of(options, plan_, splits_.train->info(), launch, method_, Role::generator)),
      staleness_(staleness_of(options, *method_.attacks.last().attack)),
      rule_(options.deterministic),
      parted_(in_parts(staleness_)),
      pixels_(fits_on_device(replica_.backend(), *splits_.train, training_images_resident(options))
                  ? put_on_device(replica_.backend(), *splits_.train)
                  : nullptr),
      attacker_(replica_.images(), replica_, method_.attacks, nullptr),
      reader_(*splits_.train, trainers_,
              reading(options, plan_, pixels_ == nullptr, data_threads(options, replica_.backend()))),
      under_way_{.steps = staleness_.versions + 1, .units = plan_.most_units()},
      all_(static_cast<std::size_t>(trainers_)),
      tasks_(static_cast<std::size_t>(trainers_ * under_way_.places())),
      batch_steps_(static_cast<std::size_t>(trainers_ * under_way_.steps), -1),
      units_read_(batch_steps_.size(), std::vector<bool>(static_cast<std::size_t>(plan_.most_units()))),
      versions_(launch, own_trainer_, replica_, staleness_.versions + 1, options.generator_weights == "bf16"),
      answers_(launch, replica_.backend(),
               bytes_of_ages(staleness_.iterations) +
                   static_cast<std::size_t>(plan_.micro_batch * replica_.images().layout.elements()) * sizeof(float)) {
  require_work(options, plan_);
  attacker_.keep_on_device(pixels_);
  Backend& backend = replica_.backend();
  const std::int64_t floats = plan_.micro_batch * replica_.images().layout.elements();
  for (Task& task : tasks_) {
    task.ages.resize(static_cast<std::size_t>(staleness_.iterations));
    if (parted_) task.eta = backend.allocate_floats(floats, "attacks under way");
  }
  for (std::size_t k = 0; k < batch_steps_.size(); ++k) batches_.push_back(reader_.batch());
  replica_.commit();
}

ExitCode Generator::serve(const std::function<std::optional<ExitCode>()>& called, const std::function<bool()>& stop) {
  std::optional<ExitCode> end;
  stop_ = stop;
  const auto over = [&] {
    look_for_messages();
    if (!end) end = called();
    return end && !working();
  };
  while (!over()) {
    if (Task* const task = next_task()) {
      go_on(*task);
      continue;
    }
    const double began = seconds_now();
    const CallLabel label("micro-batches to attack");
    launch_.wait_for_work(0, [&] { return over() || next_task() != nullptr; });
    idle_ += seconds_now() - began;
  }
  answers_.finish();
  return *end;
}

bool Generator::working() const {
  return std::ranges::any_of(all_, [](const Trainer& one) { return one.open; });
}

void Generator::look_for_messages() {
  tell_stop();
  while (const auto arrival = launch_.probe(Communicator::kAnyRank, kOrderTag)) {
    Order order;
    require_sound(arrival->from < trainers_ && arrival->bytes == sizeof order, arrival->from, "its length, ",
                  arrival->bytes, " bytes");
    launch_.receive(&order, sizeof order, arrival->from, kOrderTag);
    obey(arrival->from, order);
  }
  // The order to begin, which was sent before, says what the first version is.
  while (all_[static_cast<std::size_t>(own_trainer_)].open && versions_.take()) drop_old();
  pause_where_told();
}

void Generator::obey(int trainer, const Order& order) {
  Trainer& from = all_[static_cast<std::size_t>(trainer)];
  const auto tasks = tasks_.begin() + trainer * under_way_.places();
  switch (order.kind) {
    case Order::Kind::begin:
      from = {.open = true};
      if (trainer == own_trainer_) versions_.begin(order.step - order.versions);
      return;
    case Order::Kind::attack: {
      require_sound(from.open && order.step >= 0 && order.step < plan_.steps && order.unit >= 0 &&
                        order.unit < plan_.micro_batches_of(trainer),
                    trainer, "its number, micro-batch ", order.unit, " of step ", order.step);
      Task& task = tasks[static_cast<std::ptrdiff_t>(under_way_.place(order.step, order.unit))];
      require_sound(!task.wanted || task.step < order.step, trainer, "its number, micro-batch ", order.unit,
                    " of step ", order.step, ", after that of step ", task.step);
      if (task.wanted) give_up(task);
      task = {.wanted = true,
              .step = order.step,
              .trainer = trainer,
              .unit = order.unit,
              .eta = task.eta,
              .ages = std::move(task.ages)};
      return;
    }
    case Order::Kind::pause:
      for (auto task = tasks; task != tasks + under_way_.places(); ++task) task->wanted = false;
      from.pauses_behind = order.versions;
      return;
  }
  require_sound(false, trainer, "its kind");
}

void Generator::drop_old() {
  for (Task& task : tasks_)
    if (task.wanted && task.step < versions_.newest()) give_up(task);
}

void Generator::give_up(Task& task) {
  task.wanted = false;
  answers_.packet().header() = {.step = task.step, .unit = task.unit, .waiting = waiting()};
  answers_.send(task.trainer);
}

void Generator::tell_stop() {
  if (!stop_()) return;
  for (int trainer = 0; trainer < trainers_; ++trainer) {
    Trainer& one = all_[static_cast<std::size_t>(trainer)];
    if (!one.open || std::exchange(one.told_to_stop, true)) continue;
    answers_.packet().header() = {.step = AnswerHeader::kStop};
    answers_.send(trainer);
  }
}

void Generator::pause_where_told() {
  for (int trainer = 0; trainer < trainers_; ++trainer) {
    Trainer& one = all_[static_cast<std::size_t>(trainer)];
    if (!one.pauses_behind || (trainer == own_trainer_ && versions_.count() < *one.pauses_behind)) continue;
    answers_.packet().header() = {.step = AnswerHeader::kPauses};
    answers_.send(trainer);
    one = {};
  }
}

int Generator::waiting() const {
  return static_cast<int>(std::ranges::count_if(tasks_, [](const Task& task) { return task.wanted; }));
}

std::int64_t Generator::version_of(const Task& task, int iteration) const {
  return rule_ ? staleness_.version(task.step, iteration, versions_.first()) : versions_.newest();
}

Generator::Task* Generator::next_task() {
  Task* best = nullptr;
  const auto earlier = [](const Task& a, const Task& b) {
    return std::tuple(a.step, a.unit, a.trainer) < std::tuple(b.step, b.unit, b.trainer);
  };
  for (Task& task : tasks_)
    // Without a rule the newest is good where it is no older than allowed.
    if (task.wanted &&
        versions_.has(std::max(version_of(task, task.done), rule_ ? 0 : task.step - staleness_.versions)) &&
        (best == nullptr || earlier(task, *best)))
      best = &task;
  return best;
}

void Generator::load(Task& task) {
  const std::size_t at = static_cast<std::size_t>(task.trainer * under_way_.steps + task.step % under_way_.steps);
  HostBatch& batch = batches_[at];
  if (batch_steps_[at] != task.step) {
    reader_.choose(batch, task.step, task.trainer, reader_.ranks());
    units_read_[at].assign(units_read_[at].size(), false);
  }
  batch_steps_[at] = task.step;
  const auto unit = static_cast<std::size_t>(task.unit);
  if (reader_.reads_pixels() && !units_read_[at][unit]) reader_.read_micro_batch(batch, task.unit);
  units_read_[at][unit] = true;
  attacker_.load(batch, task.unit);
  // The logits of clean images that a goal may ask for are those of the first iteration's weights.
  versions_.use(version_of(task, attacker_.planned().goal.reference && rule_ ? 0 : task.done));
  attacker_.begin();
  if (task.done > 0) attacker_.resume(task.done, task.eta);
}

void Generator::go_on(Task& task) {
  const double began = seconds_now();
  if (task.done == 0) task.began = began;
  const std::int64_t version = version_of(task, task.done), passes = attacker_.passes();
  const int all = staleness_.iterations;
  if (task.done == 0 || loaded_ != &task) load(task);
  versions_.use(version);
  int count = all - task.done;
  if (parted_) {
    count = 1;
    while (rule_ && task.done + count < all && version_of(task, task.done + count) == version) ++count;
    attacker_.advance(count);
  } else {
    attacker_.finish();
  }
  std::fill_n(task.ages.begin() + task.done, count, static_cast<std::int32_t>(task.step - version));
  task.done += count;
  task.passes += attacker_.passes() - passes;
  loaded_ = &task;
  const Batch& batch = attacker_.batch();
  if (task.done < all) copy_bits(batch.device, batch.eta, task.eta, batch.n * batch.layout.elements());
  if (observer_) observer_(count, seconds_now() - began);
  task.seconds += seconds_now() - began;
  if (task.done == all) answer(task);
}

void Generator::answer(Task& task) {
  const double began = seconds_now();
  task.wanted = false;
  AnswerPacket& packet = answers_.packet();
  const Batch& batch = attacker_.batch();
  packet.header() = {.step = task.step,
                     .unit = task.unit,
                     .count = batch.n,
                     .block = batch.layout.block,
                     .ages = staleness_.iterations,
                     .waiting = waiting(),
                     .passes = task.passes,
                     .idle = std::exchange(idle_, 0)};
  std::ranges::copy(task.ages, ages_in(packet));
  const auto bytes = static_cast<std::size_t>(batch.n * batch.layout.elements()) * sizeof(float);
  replica_.backend().copy_to_host(images_in(packet), batch.x_adv, bytes);  // waits for the attack
  packet.header().seconds = task.seconds + seconds_now() - began;
  packet.header().since = seconds_now() - task.began;
  answers_.send(task.trainer, bytes_of_ages(staleness_.iterations) + bytes);
}

}  // namespace dat
