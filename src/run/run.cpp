#include "run/run.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "communicate/handshake.hpp"
#include "communicate/together.hpp"
#include "dat/provenance.hpp"
#include "printed.hpp"
#include "replica/device_notices.hpp"
#include "run/begin/folder.hpp"
#include "run/begin/left.hpp"
#include "run/opening.hpp"
#include "run/restart.hpp"
#include "run/signals.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/role.hpp"
#include "train/protocol/ban_protocol.hpp"

namespace dat {

namespace {

/// The simulated attackers that have left by now.
[[nodiscard]] std::vector<LeftRecord> due_to_leave(const std::vector<Cheater>& attackers, std::int64_t done) {
  std::vector<LeftRecord> records;
  for (const Cheater& one : leaving(attackers, done)) records.push_back({one.rank, done, "--cheat " + one.name});
  return records;
}

}  // namespace

Run::Run(Communicator& world, const TrainOptions& options, GivenWeights weights, int argc, char** argv)
    : world_(world),
      options_(options),
      arguments_(argv, static_cast<std::size_t>(argc)),
      folder_(folder_of(options)),
      members_(world),
      weights_(std::move(weights)),
      checkpoints_(options, best_) {
  world.watch(options.comm_timeout);
  ranks_ = world.subgroup(static_cast<int>(role_of(world.rank(), world.size(), options)), world.rank());
}

ExitCode Run::train() {
  plan();
  if (beginning_.finished) {
    if (world_.root()) std::cout << "the run in " << folder_ << " is finished:\n\n" << beginning_.summary << std::flush;
    return ExitCode::done;
  }
  finish_step_on_signal();
  if (generator_) {
    world_.keep_records_in(folder_);
    return generator_->serve([this] { return members_.called(); }, signalled);
  }
  for (int rank = ranks_->size(); rank < world_.size(); ++rank) members_.serves(rank);
  part_ = beginning_.part;
  if (part_ != 0 && beginning_.left.empty()) {
    replace(trainer_, *ranks_, options_in(part_),
            [&](Trainer& trainer) { take_up(*std::exchange(beginning_.state, {}), options_, trainer, beginning_); });
  }
  trainer_->share_state();
  open_report();
  trainer_->start();
  // Checkpoint of the first rollback; and where steps are counted anew, the newest file has the present number.
  if (beginning_.counted_anew || (options_.on_bad_steps == "rollback" && !beginning_.own()))
    save(Checkpoints::Kind::step);
  if (!leave(beginning_.left, true)) return members_.sleep_until_the_end();
  do
    if (const std::optional<ExitCode> code = steps()) return *code;
  while (!finish());
  return ExitCode::done;
}

void Run::plan() {
  Facts facts;
  together(world_, [&] {
    attackers_ = attackers_of(options_);
    require_fitting(attackers_, world_.size());
    require_validators(options_, ranks_->size());
    if (role_of(world_.rank(), world_.size(), options_) == Role::trainer)
      trainer_ = std::make_unique<Trainer>(*ranks_, options_in(0), open_splits(options_, true));
    else
      generator_ = std::make_unique<Generator>(world_, options_);
    Replica& replica = trainer_ ? trainer_->replica() : generator_->replica();
    const Splits& splits = trainer_ ? trainer_->splits() : generator_->splits();
    if (trainer_) (void)text_of_parts(options_, trainer_->plan().mix, ranks_->size());  // all parts can be planned
    facts = {{"device", replica.backend().arithmetic()},
             {"number of parameters", std::to_string(file_size(replica.model().parameters.segments))}};
    for (const auto& [split, hash] : splits.hashes) facts.emplace_back("hash of the " + images_text(split), hash);
    // Generators may attack on another device where no bits are promised.
    if (options_.generators != 0 && !options_.deterministic) facts.erase(facts.begin());
  });
  shake_hands(world_, facts);
  together(world_, [&] {
    if (!world_.root()) return;
    const bool made = folder_.empty();
    if (made) folder_ = make_run_folder();
    // Nothing in the folder is looked at before it is this process's alone.
    lock_ = std::make_unique<RunLock>(folder_, say, made);
    TrainOptions resolved = trainer_->resolved();
    resolved.out = folder_;
    put_back_parts(resolved, options_, ranks_->size());
    config_ = toml_of(resolved);
    (void)parse_train_options(config_, "the configuration of this run");  // `eval`, `export` and --config will read it
    beginning_ = begin(resolved, folder_, std::move(weights_), *trainer_);
    if (!lock_->warning().empty()) beginning_.warnings.push_back(lock_->warning());
  });
  world_.broadcast(folder_);
  world_.broadcast(&beginning_.finished, sizeof beginning_.finished);
  world_.broadcast(&beginning_.step, sizeof beginning_.step);
  world_.broadcast(&beginning_.counted_anew, sizeof beginning_.counted_anew);
  world_.broadcast(&beginning_.part, sizeof beginning_.part);
  share(beginning_.left, world_);
  hosts_ = world_.gather(host_name());
}

void Run::open_report() {
  const std::vector<std::string> notices = device_notices(*ranks_, trainer_->replica().backend(), options_.device);
  together(*ranks_, [&] {
    if (!ranks_->root()) return;
    const Opening opening{options_, folder_, config_, provenance(), beginning_, notices};
    const RunFacts facts = run_facts(opening, *trainer_, *ranks_);
    checkpoints_.open(
        folder_, beginning_.step, [this](const std::string& warning) { report_->warning(warning); },
        [this] { report_->require_alone(); });
    report_ = std::make_unique<Report>(facts, beginning_.metrics_bytes, beginning_.behind);
    lock_->sign(host_name(), beginning_.own());
    tell_opening(*report_, opening, *trainer_, *ranks_);
  });
  recording_ = true;
  world_.keep_records_in(folder_);
  owe(beginning_.evaluation_due, beginning_.recorded);
  best_.take_up(beginning_.best, beginning_.since_best);
  checkpoints_.find_best(*ranks_);
}

std::optional<ExitCode> Run::steps() {
  while (trainer_->steps_done() < trainer_->plan().steps) {
    if (stops_early() && !evaluated_.empty() && evaluated_.front().step == trainer_->steps_done()) break;
    // With less --patience, or after a rollback or a best network that could not be written, a run may be at its end
    // where it has not been evaluated; the evaluation that says so counts once.
    if (stops_early() && std::exchange(evaluation_due_, 1) == 0) best_.forget_evaluation();
    if (evaluation_due_ != 0) {  // also of the checkpoint from which the run continues
      evaluate();
      if (stops_early()) save(Checkpoints::Kind::step);
      continue;
    }
    enter_next_part();
    const std::int64_t epoch = trainer_->plan().steps_per_epoch, all = trainer_->plan().steps;
    const std::int64_t checkpoint_every = options_.checkpoint_every != 0 ? options_.checkpoint_every : epoch;
    if (!leave(due_to_leave(attackers_, trainer_->steps_done()), false)) return members_.sleep_until_the_end();
    if (!step()) {
      if (members_.has_left(world_.rank())) return members_.sleep_until_the_end();
      continue;
    }
    const std::int64_t done = trainer_->steps_done();
    if (options_.check_every != 0 && done % options_.check_every == 0) check();
    const bool finished = done == all;
    evaluation_due_ = options_.eval_every != 0 && done % (epoch * options_.eval_every) == 0;
    if (trainer_->stop_agreed() && !finished) {
      stopping_ = true;
      save(Checkpoints::Kind::step);
      checkpoints_.settle(*ranks_);
      if (ranks_->root())
        report_->message("stopped on a signal after step " + std::to_string(trainer_->steps_done()) + "; " +
                         same_command(options_, folder_) + " goes on from here");
      return ExitCode::stopped;
    }
    if (evaluation_due_ != 0 && !finished) evaluate();
    if (trainer_->steps_done() != done) continue;
    if (finished || done % checkpoint_every == 0 || stops_early()) save(Checkpoints::Kind::step);
  }
  return {};
}

bool Run::leave(const std::vector<LeftRecord>& leaving, bool told) {
  const std::vector<LeftRecord> gone = members_.add(leaving);
  if (gone.empty()) return true;
  for (const LeftRecord& one : gone) world_.excuse(one.rank);
  trainer_->timer().lap(Phase::other);
  const RankRecord times = gather_times();
  const auto state = told ? std::exchange(beginning_.state, {}) : std::optional(trainer_->capture());
  const bool stays = !members_.has_left(world_.rank());
  // The trainer lives on its group until there is another one.
  const std::unique_ptr<Communicator> before =
      std::exchange(ranks_, ranks_->subgroup(stays ? 0 : Communicator::kNoColor, ranks_->rank()));
  if (!stays) {
    trainer_.reset();
    return false;
  }
  if (ranks_->root()) {
    report_->ranks(times);
    for (LeftRecord one : gone) {
      one.host = hosts_[static_cast<std::size_t>(one.rank)];
      one.staying = ranks_->size();
      one.ranks = world_.size();
      told ? report_->message(one.sentence()) : report_->tell(one);
    }
  }
  restart(trainer_, *ranks_, options_in(part_), state);
  return true;
}

TrainOptions Run::options_in(int part) const {
  const TrainOptions options = part_of(options_, beginnings_of_parts(options_)[static_cast<std::size_t>(part)]);
  const int gone = static_cast<int>(std::ssize(members_.left()));
  return gone == 0 ? options : options_left(options, trainer_->plan(), world_.size(), gone);
}

void Run::enter_next_part() {
  const int part = part_at(options_, trainer_->plan().epoch_of(trainer_->steps_done()));
  if (part == part_) return;
  trainer_->timer().lap(Phase::other);
  const RankRecord times = gather_times();
  restart_in(part, trainer_->capture());
  checked_ = recorded_ = -1;
  evaluated_.clear();
  together(*ranks_, [&] {
    if (!ranks_->root()) return;
    report_->ranks(times);
    const Plan& plan = trainer_->plan();
    report_->message("from epoch " + std::to_string(plan.epoch_of(trainer_->steps_done())) + " on steps have " +
                     std::to_string(plan.images_of_a_step()) + " images, and epochs " +
                     std::to_string(plan.steps_per_epoch) + " steps: step " +
                     std::to_string(trainer_->steps_done() + 1) + " is next");
  });
  save(Checkpoints::Kind::step);  // the newest file has today's number
}

void Run::restart_in(int part, const std::optional<Checkpoint>& state) {
  part_ = part;
  restart(trainer_, *ranks_, options_in(part), state);
  if (ranks_->root()) report_->count_anew(trainer_->plan().steps, trainer_->plan().steps_per_epoch);
}

bool Run::step() {
  const StepRecord* record = nullptr;
  try {
    record = &trainer_->step(signalled());
  } catch (const Error& error) {  // on all ranks alike
    if (error.code() != ExitCode::numerical || options_.on_bad_steps != "rollback") throw;
    roll_back(trainer_->skipped(), false);
    return false;
  }
  const bool made = tell_accusations();
  if (made) tell(*record);
  return made;
}

void Run::tell(const StepRecord& record) {
  if (ranks_->root()) {
    report_->step(record);
    const std::string& why = trainer_->skipped();
    if (const double scale = trainer_->overflowed_to(); !why.empty() && scale > 0)
      report_->tell(OverflowRecord{record.step, scale, why});
    else if (!why.empty())
      report_->tell(SetbackRecord{record.step, "skipped", why});
  }
  tell_corruptions();
  if (const std::string crowded = crowding_.after_step(*ranks_, hosts_); !crowded.empty()) report_->warning(crowded);
  for (const StragglerRule::Change& change : trainer_->compare_speed())
    if (const int rank = ranks_->launch_rank(change.rank); ranks_->root())
      report_->tell(
          StragglerRecord{record.step, rank, change.slow, change.ratio, hosts_[static_cast<std::size_t>(rank)]});
}

bool Run::tell_accusations() {
  for (const Accusation& one : trainer_->take_accusations())
    if (ranks_->root()) report_->tell(AccusationRecord{one.step + 1, one.by, one.rank, name_of(one.rule), one.upheld});
  std::vector<LeftRecord> leaving;
  for (const Ban& ban : trainer_->bans()) {
    if (ranks_->root()) report_->tell(BanRecord{ban.step + 1, ban.rank, ban.by, name_of(ban.rule)});
    leaving.push_back({ban.rank, ban.step, std::string("banned: ") + name_of(ban.rule)});
  }
  if (!leaving.empty()) (void)leave(leaving, false);
  return leaving.empty();
}

double Run::held_out_accuracy() const {
  return dat::held_out_accuracy(evaluated_, options_.average == "none" ? "raw" : "average");
}

void Run::evaluate() {
  evaluated_ = trainer_->evaluate([this](double part) {
    if (!ranks_->root()) return;
    lock_->note_evaluation(part);
    if (part < 1) report_->evaluating(part);
  });
  checkpoints_.settle(*ranks_);  // the file of the best network before is settled before it is compared with
  const bool better = options_.holdout != 0 && best_.judge(held_out_accuracy(), trainer_->steps_done());
  // A run that goes on after its early end makes it again.
  evaluation_due_ = stops_early() && recorded_ != trainer_->steps_done();
  if (better) {
    record_evaluation();
    save(Checkpoints::Kind::best);
  } else if (!stops_early() || (overfits() && options_.on_overfitting != "warn")) {
    record_evaluation();
    if (overfits()) overfitting();
  }
}

bool Run::overfits() const {
  return options_.holdout != 0 && overfits_catastrophically(best_.accuracy(), held_out_accuracy());
}

void Run::overfitting() {
  const std::string cause = best_.overfitting_text(held_out_accuracy(), trainer_->steps_done());
  if (ranks_->root()) report_->tell(SetbackRecord{trainer_->steps_done(), "overfitting", cause});
  if (options_.on_overfitting == "rollback") return roll_back(cause, true);
  require(options_.on_overfitting == "warn", ExitCode::numerical, cause, "; ckpt/best.h5 has the network of then");
}

bool Run::finish() {
  check();
  const double training_seconds = trainer_->timer().wall_time();
  const std::int64_t done = trainer_->steps_done();
  std::vector<std::string> remarks;
  if (stops_early()) {
    const bool told = recorded_ == done;
    record_evaluation();
    if (!told && overfits()) overfitting();
    remarks.push_back(best_.early_end_text(done, trainer_->plan().steps));
  } else {
    evaluate();
  }
  if (trainer_->steps_done() != done) return false;
  checkpoints_.settle(*ranks_);  // HDF5 writes for one thread at a time
  const RankRecord times = gather_times();
  if (ranks_->root()) {
    report_->ranks(times);
    const bool finite = std::ranges::all_of(evaluated_, [](const EvaluationRecord& record) {
      return std::isfinite(record.adv_loss) && std::isfinite(record.clean_loss);
    });
    const Splits& splits = trainer_->splits();
    std::erase_if(evaluated_, [](const EvaluationRecord& record) { return record.split != "test"; });
    report_->finish({.evaluations = evaluated_,
                     .time_s = training_seconds,
                     .comm_s = trainer_->timer().exposed_time(),
                     .verdict = verdict_of(finite, splits.test->size(), splits.test_images),
                     .weights_hash = trainer_->weights_hash(),
                     .remarks = remarks});
  }
  checkpoints_.settle(*ranks_);
  return true;
}

void Run::check() {
  trainer_->check_replicas();
  checked_ = trainer_->steps_done();
  tell_corruptions();
}

void Run::tell_corruptions() {
  for (const CorruptionRecord& record : trainer_->take_corruptions())
    if (ranks_->root()) report_->tell(record);
}

void Run::record_evaluation() {
  const std::int64_t done = trainer_->steps_done();
  if (std::exchange(recorded_, done) != done && ranks_->root()) report_->evaluation(evaluated_);
}

void Run::owe(std::int64_t evaluation_due, bool recorded) {
  std::int64_t known[] = {evaluation_due, recorded ? 1 : 0};
  ranks_->broadcast(known, sizeof known);
  evaluation_due_ = known[0];
  recorded_ = known[1] != 0 ? trainer_->steps_done() : -1;
  evaluated_.clear();
}

bool Run::stops_early() const {
  return options_.patience != 0 && best_.evaluations_since() >= options_.patience &&
         trainer_->steps_done() < trainer_->plan().steps;
}

std::string Run::provenance() {
  return provenance_json(hosts_, static_cast<int>(arguments_.size()), arguments_.data(),
                         trainer_->replica().backend().description(), trainer_->splits().hashes);
}

void Run::save(Checkpoints::Kind kind, const CutRecord* cut) {
  // So what is saved is good, whatever comes to light later.
  if (options_.check_every > 0 && checked_ != trainer_->steps_done()) check();
  trainer_->timer().lap(Phase::other);
  const RankRecord times = gather_times();
  checkpoints_.settle(*ranks_);  // before the next one takes memory, too
  if (!stopping_) trainer_->complete_average();
  Checkpoint state = trainer_->capture();
  std::string bad = not_finite(state);
  ranks_->broadcast(bad);
  if (!bad.empty()) {
    bad += " is not finite after step " + std::to_string(trainer_->steps_done());
    require(options_.on_bad_steps == "rollback", ExitCode::numerical, bad,
            ", which is not saved: lower --lr or raise --warmup-epochs");
    return roll_back(bad, false);
  }
  together(*ranks_, [&] {
    if (!ranks_->root()) return;
    checkpoints_.write(kind, trainer_->steps_done(), std::move(state), [&](Checkpoint& whole) {
      report_->ranks(times);
      complete(whole, kind, cut);
    });
  });
  if (kind == Checkpoints::Kind::best) best_.share(*ranks_);
  trainer_->timer().lap(Phase::checkpoint);
}

void Run::complete(Checkpoint& state, Checkpoints::Kind kind, const CutRecord* cut) {
  const std::int64_t bytes = report_->metrics_bytes();  // all of them are on disk
  state.integers["metrics_bytes"] = cut != nullptr ? cut->bytes : bytes;
  if (cut != nullptr) state.texts["metrics_behind"] = cut->behind;
  state.integers["evaluation_due"] = evaluation_due_;
  state.integers["evaluation_recorded"] = recorded_ == trainer_->steps_done() ? 1 : 0;
  state.texts["config_toml"] = config_;
  kind == Checkpoints::Kind::best ? best_.save_as_best(state, bytes) : best_.save(state);
  if (options_.patience > 0) {
    // The evaluation that ends the run is still due in its last checkpoint, as any run's last one is.
    state.integers["since_best"] = best_.evaluations_since() - (stops_early() && evaluation_due_ != 0 ? 1 : 0);
    state.integers["stopped_early"] = stops_early() ? 1 : 0;
  }
  save_left(members_.left(), state);
  state.texts["provenance"] = provenance();
}

}  // namespace dat
