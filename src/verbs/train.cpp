// The verb train: everything around the steps.

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/run_lock.hpp"
#include "options/train/parse.hpp"
#include "run/advice.hpp"
#include "run/beginning.hpp"
#include "run/core_wait.hpp"
#include "train/plan/role.hpp"
#include "train/trainer.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t signals_seen = 0;
volatile std::sig_atomic_t under_way = 0;  ///< the run has begun to write; until then there is nothing to lose
volatile std::sig_atomic_t speaks = 0;
volatile std::time_t first_signal = 0;

/// While the program starts (reads files, plans, waits for the folder), the first signal ends it at once. Later it asks
/// for an end after the step. Job systems send it several times within a moment; one that comes seconds later means it:
/// end at once.
extern "C" void on_signal(int) {
  constexpr std::time_t kGraceSeconds = 2;
  if (under_way == 0) {
    constexpr char kText[] = "dat_hpc: stopped on a signal before the first step; the same command starts again\n";
    if (speaks != 0) static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
    _exit(static_cast<int>(ExitCode::stopped));
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (signals_seen == 0) first_signal = now.tv_sec;
  if (signals_seen != 0 && now.tv_sec > first_signal + kGraceSeconds) _exit(static_cast<int>(ExitCode::stopped) + 1);
  signals_seen = 1;
}

void catch_signals() {
  speaks = rank_from_environment() == 0 ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaction(signal, &action, nullptr);
  // Whoever stops reading what is printed does not stop the run: run.log has every line.
  std::signal(SIGPIPE, SIG_IGN);
}

[[nodiscard]] std::string default_folder() {
  if (const char* job = std::getenv("SLURM_JOB_ID")) return std::string("runs/slurm-") + job;
  const std::time_t now = std::time(nullptr);
  std::ostringstream name;
  name << "runs/" << std::put_time(std::gmtime(&now), "%Y%m%dT%H%M%SZ");
  return name.str();
}

/// The name of an array that is not finite; empty: there is none.
[[nodiscard]] std::string not_finite(const Checkpoint& checkpoint) {
  for (const Checkpoint::Array& array : checkpoint.arrays)
    if (!std::all_of(array.values.begin(), array.values.end(), [](float value) { return std::isfinite(value); }))
      return array.name;
  return "";
}

/// A run between its beginning and its summary: what stands around the trainer's steps.
class Run {
 public:
  Run(Communicator& world, const TrainOptions& options, int argc, char** argv)
      : world_(world), options_(options), argc_(argc), argv_(argv), folder_(options_.out) {
    shake_hands(world, facts_of(settings_of(options), argc, argv));
    if (options_.comm_timeout > 0) world.watch(options_.comm_timeout);
    if (folder_.empty()) folder_ = default_folder();
    world.broadcast(folder_);
    ranks_ = world.split(static_cast<int>(role_of(world.rank(), options_)), world.rank());
  }
  int go();

 private:
  void plan();
  void open_report();
  /// Steps until the run's end, or until somebody wants it to stop: then true.
  [[nodiscard]] bool steps();
  /// Compares the ranks' states, and records what has been put right.
  void check();
  /// Records what has been put right.
  void tell_corruptions();
  /// Warns, once, where threads of a rank wait for cores that others use. **Collective.**
  void compare_load();
  /// One step, recorded. False: its numbers were not finite, and the run has gone back to a checkpoint.
  [[nodiscard]] bool step();
  /// Makes and records it, unless it ends the run: then finish() records it. Keeps the weights that are best under the
  /// attack that hurts them most, on what is held out: the averaged ones, where there are any. May go back to a
  /// checkpoint (steps_done()).
  void evaluate();
  void record_evaluation() {
    if (world_.root()) report_->evaluation(evaluated_);
  }
  /// Whether --patience ends the run here, before its last step.
  [[nodiscard]] bool stops_early() const {
    return options_.patience > 0 && since_best_ >= options_.patience && trainer_->steps_done() < trainer_->plan().steps;
  }
  /// Catastrophic overfitting has been seen: as --on-overfitting says.
  void overfitting(double accuracy);
  /// Goes back to the last good checkpoint, or to the best one, with a lower learning rate. Error(numerical): no more.
  void roll_back(std::string cause, bool to_best);
  /// The best checkpoint, or the newest one of a step up to the last that was good. Empty: there is none. On rank 0.
  [[nodiscard]] std::optional<Checkpoint> to_go_back_to(std::int64_t last_good, bool best);
  /// Of a step; or, of the best weights so far, where it is not of the run's own series.
  /// `record`: length of metrics.jsonl that it is to go on from; empty: as it is.
  void save(bool as_best, std::optional<std::int64_t> record = {});
  /// Does what writes a checkpoint. Not empty: it could not be written, and the run goes on without it, as is asked
  /// for.
  [[nodiscard]] std::optional<Error> attempt(const std::function<void()>& writing);
  /// What becomes of a checkpoint that could not be written.
  void miss(const std::optional<Error>& error, bool as_best);
  /// Waits for the checkpoint that is being written beside the steps. **Collective.**
  void settle();
  /// Sees to it that ckpt/best.h5 is that of best_. **Collective.**
  void find_best();
  void share_best();
  /// Error(io) where the run's last checkpoint could not be written. **Collective.**
  void require_saved();
  /// False: the last evaluation has made the run go back to a checkpoint.
  [[nodiscard]] bool finish();
  [[nodiscard]] std::string provenance() {
    return provenance_json(hosts_, argc_, argv_, trainer_->replica().backend().description());
  }

  Communicator& world_;
  const TrainOptions& options_;
  int argc_;
  char** argv_;
  std::string folder_, config_;          ///< config_: resolved
  std::unique_ptr<Communicator> ranks_;  ///< those of this rank's role
  std::unique_ptr<Trainer> trainer_;
  std::vector<std::string> hosts_;
  // On rank 0:
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<Report> report_;
  std::unique_ptr<CheckpointFolder> checkpoints_;
  std::optional<Error> unsaved_;  ///< why the last checkpoint of the run's own series could not be written
  std::future<void> writing_;     ///< --checkpoint-async: the checkpoint under way; ends before what it uses
  bool writing_best_ = false;     ///< it is best.h5
  // On all ranks, as rank 0 knows it:
  Beginning beginning_;
  std::int64_t evaluation_due_ =
      0;                         ///< a stop comes before the evaluation of its step, which the next part makes up for
  BestRecord best_;              ///< of ckpt/best.h5
  BestRecord best_before_;       ///< of the one before, until that file is written
  std::int64_t since_best_ = 0;  ///< evaluations since then
  std::vector<EvaluationRecord> evaluated_;  ///< the last evaluation that this process has made
  bool stopping_ = false;                    ///< somebody wants the run to stop, soon
  std::int64_t checked_ = -1;                ///< the step after which the ranks were compared last
  CoreWait cores_;
  std::int64_t steps_here_ = 0;  ///< of this process
  bool crowded_ = false;         ///< the warning has been given
};

void Run::plan() {
  Facts facts;
  together(world_, [&] {
    trainer_ = std::make_unique<Trainer>(*ranks_, options_);
    facts = {{"device", trainer_->replica().backend().arithmetic()},
             {"number of parameters", std::to_string(file_size(trainer_->model().parameters.segments))},
             {"hash of the training images", hash_to_compare(world_, *trainer_->splits().train)},
             {"hash of the test images", hash_to_compare(world_, *trainer_->splits().test)}};
  });
  shake_hands(world_, facts);
  together(world_, [&] {
    if (!world_.root()) return;
    TrainOptions resolved = trainer_->resolved();
    resolved.out = folder_;
    config_ = toml_of(resolved);
    // Nothing in the folder is looked at before it is this process's alone.
    lock_ = std::make_unique<RunLock>(folder_, [](const std::string& message) {
      std::cerr << "dat_hpc: " + message + "\n" << std::flush;
    });
    beginning_ = begin(resolved, folder_, *trainer_);
  });
  bool known[] = {beginning_.finished, beginning_.own};
  world_.broadcast(known, sizeof known);
  beginning_.finished = known[0];
  beginning_.own = known[1];
}

void Run::open_report() {
  hosts_ = world_.gather(host_name());
  const std::vector<std::string> notices = device_notices(world_, trainer_->replica().backend(), options_.device);
  together(world_, [&] {
    if (!world_.root()) return;
    const Plan& plan = trainer_->plan();
    const Parameters& parameters = trainer_->model().parameters;
    const std::string device = trainer_->replica().backend().description();
    RunFacts facts;
    facts.folder = folder_;
    facts.config_toml = config_;
    facts.provenance_json = provenance();
    facts.layer_names = parameters.layer_names;
    facts.layer_sizes = parameters.layer_sizes;
    facts.layer_costs = trainer_->layers().costs();
    facts.ranks = world_.size();
    facts.total_steps = plan.steps;
    facts.steps_per_epoch = plan.steps_per_epoch;
    facts.epochs = plan.epochs;
    facts.warmup_epochs = plan.warmup_epochs;
    facts.attack_steps = trainer_->attack().gradients_of_run();
    facts.progress_seconds = options_.progress;
    facts.quiet = options_.quiet;
    facts.keep_on = options_.on_full == "continue";
    checkpoints_ = std::make_unique<CheckpointFolder>(folder_ + "/ckpt", beginning_.own);
    report_ = std::make_unique<Report>(facts, beginning_.metrics_bytes);
    for (const std::string& warning : beginning_.warnings) report_->warning(warning);
    for (const std::string& warning : trainer_->evaluation_attacks().warnings()) report_->warning(warning);
    if (options_.overlap && !ranks_->move_on_beside())
      report_->warning(
          "this MPI does not let a second thread call it: with --overlap, gradients move on between layers "
          "only, not inside them");
    if (options_.verify > 0 && ranks_->size() == 1)
      report_->warning("--verify has no other rank that could recompute anything; start several");
    for (const std::string& line : advice(options_, plan.batch, choose_threads(0, world_.node_size())))
      report_->warning(line);
    std::ostringstream line;
    line << options_.network << " width " << options_.width << ", " << file_size(parameters.segments) << " parameters, "
         << world_.size() << (world_.size() == 1 ? " rank, " : " ranks, ") << device << "; "
         << sizes_text(trainer_->splits())
         << (options_.data.empty() ? " (built-in synthetic set; --data trains on yours)" : "");
    report_->message(line.str());
    for (const std::string& notice : notices)
      if (notice.starts_with("warning: "))
        report_->warning(notice.substr(std::string("warning: ").size()));
      else
        report_->message(notice);
    if (options_.verbose)
      for (const std::string& implementation : trainer_->replica().implementations())
        report_->message("  " + implementation);
    report_->message("run folder " + folder_ + ", " + plan.text() +
                     (plan.mix_text().empty() ? "" : "; " + plan.mix_text()) + beginning_.what);
  });
  world_.keep_records_in(folder_);
  evaluation_due_ = beginning_.evaluation_due;
  world_.broadcast(&evaluation_due_, sizeof evaluation_due_);
  best_ = beginning_.best;
  since_best_ = beginning_.since_best;
  find_best();
}

void Run::share_best() {
  world_.broadcast(&best_, sizeof best_);
  world_.broadcast(&since_best_, sizeof since_best_);
}

void Run::find_best() {
  together(world_, [&] {
    if (!world_.root() || best_.accuracy < 0 || checkpoints_->restore_best(best_)) return;
    report_->warning("ckpt/best.h5, the network after step " + std::to_string(best_.step) +
                     ", is gone: the best one is chosen anew from here on");
    best_ = {};
    since_best_ = 0;
  });
  share_best();
}

std::optional<Error> Run::attempt(const std::function<void()>& writing) {
  try {
    writing();
    return {};
  } catch (const Error& error) {
    if (error.code() != ExitCode::io || options_.on_full != "continue") throw;
    return error;
  }
}

void Run::miss(const std::optional<Error>& error, bool as_best) {
  if (!error) return;
  const std::string what = error->what();
  if (!as_best) {
    unsaved_ = error;
    return report_->warning(what + "; the run goes on to the next checkpoint (--on-full continue)");
  }
  report_->warning(what + "; the run goes on with the best network before (--on-full continue)");
  best_ = best_before_;
  ++since_best_;
  if (best_.accuracy >= 0 && !checkpoints_->restore_best(best_)) best_ = {};
}

void Run::settle() {
  together(world_, [&] {
    if (writing_.valid()) miss(attempt([this] { writing_.get(); }), writing_best_);
  });
  share_best();
}

void Run::tell_corruptions() {
  for (const CorruptionRecord& record : trainer_->take_corruptions())
    if (world_.root()) report_->corruption(record);
}

void Run::check() {
  trainer_->check_replicas();
  checked_ = trainer_->steps_done();
  tell_corruptions();
}

void Run::save(bool as_best, std::optional<std::int64_t> record) {
  // So what is saved is good, whatever comes to light later.
  if (options_.check_every > 0 && checked_ != trainer_->steps_done()) check();
  trainer_->timer().lap(Phase::other);
  const RankRecord times = as_best ? RankRecord{} : trainer_->gather_times();
  settle();  // before the next one takes memory, too
  if (!stopping_) trainer_->complete_average();
  Checkpoint state = trainer_->capture();
  std::string bad = not_finite(state);
  world_.broadcast(bad);
  if (!bad.empty()) {
    bad += " is not finite after step " + std::to_string(trainer_->steps_done());
    require(options_.on_bad_steps == "rollback", ExitCode::numerical, bad,
            ", which is not saved: lower --lr or raise --warmup-epochs");
    return roll_back(bad, false);
  }
  together(world_, [&] {
    if (!world_.root()) return;
    const auto write = [&] {
      if (!as_best) {
        unsaved_.reset();
        report_->ranks(times);
      }
      state.integers["metrics_bytes"] = record.value_or(report_->metrics_bytes());
      state.integers["evaluation_due"] = evaluation_due_;
      state.texts["config_toml"] = config_;
      if (as_best) best_.bytes = report_->metrics_bytes();
      best_.save(state);
      if (options_.patience > 0) {
        // The evaluation that ends the run is still due in its last checkpoint, as any run's last one is.
        state.integers["since_best"] = since_best_ - (stops_early() ? 1 : 0);
        state.integers["stopped_early"] = stops_early() ? 1 : 0;
      }
      state.texts["provenance"] = provenance();
      auto store = [folder = checkpoints_.get(), step = trainer_->steps_done(), as_best, state = std::move(state)] {
        if (as_best)
          folder->save_best(state);
        else
          folder->save(step, state);
      };
      writing_best_ = as_best;
      if (options_.checkpoint_async)
        writing_ = std::async(std::launch::async, std::move(store));
      else
        store();
    };
    miss(attempt(write), as_best);
  });
  if (as_best) share_best();
  trainer_->timer().lap(Phase::checkpoint);
}

void Run::require_saved() {
  settle();
  together(world_, [&] {
    if (unsaved_) throw Error(unsaved_->code(), std::string("the last checkpoint is missing: ") + unsaved_->what());
  });
}

void Run::evaluate() {
  evaluated_ = trainer_->evaluate();
  const std::string weights = options_.average == "none" ? "raw" : "average";
  double worst = 1;
  for (const EvaluationRecord& record : evaluated_)
    if (record.split == "holdout" && record.weights == weights) worst = std::min(worst, record.adv_acc);
  const bool better = worst > best_.accuracy;
  since_best_ = better ? 0 : since_best_ + 1;
  evaluation_due_ = stops_early() ? 1 : 0;  // a run that goes on behind its early end makes it again
  if (!stops_early()) record_evaluation();
  if (options_.holdout > 0 && better) {
    best_before_ = best_;
    best_ = {.accuracy = worst, .step = trainer_->steps_done()};
    save(true);
  } else if (options_.holdout > 0 && overfits_catastrophically(best_.accuracy, worst, options_.overfitting_margin)) {
    overfitting(worst);
  }
}

void Run::overfitting(double accuracy) {
  std::ostringstream cause;
  cause << std::fixed << std::setprecision(2) << "catastrophic overfitting: the robust accuracy on held-out images is "
        << 100 * accuracy << " % after step " << trainer_->steps_done() << ", and was " << 100 * best_.accuracy << " %";
  if (world_.root()) report_->setback({trainer_->steps_done(), "overfitting", cause.str()});
  if (options_.on_overfitting == "rollback") return roll_back(cause.str(), true);
  require(options_.on_overfitting == "warn", ExitCode::numerical, cause.str(),
          "; ckpt/best.h5 has the network of then");
}

// A copy of the cause: the trainer that tells it does not live on.
void Run::roll_back(std::string cause, bool to_best) {
  const Setbacks before = trainer_->setbacks();
  const std::int64_t done = trainer_->steps_done(), first_bad = done - before.in_a_row;
  require(before.rollbacks < options_.max_rollbacks, ExitCode::numerical, cause, "; the run has gone back ",
          before.rollbacks, " times already (--max-rollbacks)");
  std::int64_t bytes = 0;
  settle();
  together(world_, [&] {
    std::optional<Checkpoint> state;
    if (world_.root()) {
      state = to_go_back_to(first_bad - 1, to_best);
      require(state.has_value(), ExitCode::numerical, cause, "; there is no checkpoint to go back to");
    }
    // Nothing of what is left stays in any part: a rollback is a restart.
    Splits splits = trainer_->release_splits();
    trainer_.reset();
    trainer_ = std::make_unique<Trainer>(*ranks_, options_, std::move(splits));
    if (!world_.root()) return;
    trainer_->restore(*state);
    bytes = integer_of(*state, "metrics_bytes");
    best_ = BestRecord::of(*state);
    since_best_ = state->integers["since_best"];
  });
  trainer_->share_state();
  trainer_->set_back(before, options_.rollback_lr);
  trainer_->start();
  checked_ = -1;
  evaluation_due_ = 0;
  // Whenever the run is killed, its newest checkpoint finds the record that it wants: those of what is left go before
  // the record is cut, and what is told of the rollback is in a checkpoint afterwards.
  save(false, bytes);
  require_saved();
  together(world_, [&] {
    if (!world_.root()) return;
    report_->cut_back(bytes);
    report_->setback({done, "rollback", cause, trainer_->steps_done(), trainer_->setbacks().lr_factor});
  });
  find_best();
  save(false);
}

std::optional<Checkpoint> Run::to_go_back_to(std::int64_t last_good, bool best) {
  const auto warn = [&](const std::string& warning) { report_->warning(warning); };
  if (best) {
    try {
      return checkpoints_->best();
    } catch (const Error& error) {
      warn(std::string(error.what()) + "; going back to the last checkpoint");
    }
  }
  std::optional<Checkpoint> state = CheckpointFolder::newest_in(folder_ + "/ckpt", warn, last_good);
  return state ? std::move(state)
               : checkpoints_->newest(warn);  // no step behind it has been good: there is no other one
}

void Run::compare_load() {
  constexpr std::int64_t kFirst = 10;  // those before are of planning and of a machine that wakes up
  constexpr double kMuch = 0.2;
  ++steps_here_;
  if (steps_here_ == 2) cores_.begin();
  // Now and then: 10, 20, 40 ... steps.
  if (crowded_ || steps_here_ % kFirst != 0 || std::popcount(static_cast<std::uint64_t>(steps_here_ / kFirst)) != 1)
    return;
  const std::vector<double> shares = world_.gather(std::vector<double>{cores_.share()});
  const auto most = std::max_element(shares.begin(), shares.end());
  crowded_ = world_.root() && *most > kMuch;
  world_.broadcast(&crowded_, sizeof crowded_);
  if (!crowded_ || !world_.root()) return;
  const auto rank = most - shares.begin();
  report_->warning("the threads of rank " + std::to_string(rank) + " on " + hosts_[static_cast<std::size_t>(rank)] +
                   " wait for a core " + std::to_string(std::lround(100 * *most)) +
                   " % of their time: more is running there than it has cores for, which slows all ranks; give the "
                   "run cores of its own, or fewer --threads");
}

bool Run::step() {
  const StepRecord* record = nullptr;
  try {
    record = &trainer_->step(signals_seen != 0);
  } catch (const Error& error) {  // on all ranks alike
    if (error.code() != ExitCode::numerical || options_.on_bad_steps != "rollback") throw;
    roll_back(trainer_->skipped(), false);
    return false;
  }
  if (world_.root()) {
    report_->step(*record);
    if (!trainer_->skipped().empty()) report_->setback({record->step, "skipped", trainer_->skipped()});
  }
  tell_corruptions();
  compare_load();
  for (const StragglerRule::Change& change : trainer_->compare_speed())
    if (world_.root())
      report_->straggler({record->step, change.rank, change.slow, change.ratio},
                         hosts_[static_cast<std::size_t>(change.rank)]);
  return true;
}

bool Run::steps() {
  const std::int64_t epoch = trainer_->plan().steps_per_epoch, all = trainer_->plan().steps;
  const std::int64_t checkpoint_every = options_.checkpoint_every > 0 ? options_.checkpoint_every : epoch;
  // A run that goes on with less --patience may be at its end already; the evaluation that tells so counts once.
  const bool ended = stops_early() && evaluation_due_ == 0;
  if (ended) --since_best_;
  if (ended || (evaluation_due_ != 0 && trainer_->steps_done() < all)) {
    evaluate();
    if (stops_early()) save(false);
  }
  while (trainer_->steps_done() < all && !stops_early()) {
    if (!step()) continue;
    const std::int64_t done = trainer_->steps_done();
    if (options_.check_every > 0 && done % options_.check_every == 0) check();
    const bool finished = done == all;
    evaluation_due_ = options_.eval_every > 0 && done % (epoch * options_.eval_every) == 0;
    if (trainer_->stop_agreed() && !finished) {
      stopping_ = true;
      save(false);
      require_saved();
      if (world_.root())
        report_->message("stopped on a signal after step " + std::to_string(trainer_->steps_done()) +
                         (options_.out.empty() ? "; the same command with --out " + folder_ + " goes on from here"
                                               : "; the same command goes on from here"));
      return true;
    }
    if (evaluation_due_ != 0 && !finished) evaluate();
    if (trainer_->steps_done() != done) continue;
    if (finished || done % checkpoint_every == 0 || stops_early()) save(false);
  }
  return false;
}

bool Run::finish() {
  check();
  const double training_seconds = trainer_->timer().wall_time();
  const std::int64_t done = trainer_->steps_done();
  std::vector<std::string> remarks;
  if (stops_early()) {
    record_evaluation();
    std::ostringstream remark;
    remark << "stopped early after step " << done << " of " << trainer_->plan().steps
           << ": no better robust accuracy on " << images_text("holdout") << " than " << std::fixed
           << std::setprecision(2) << 100 * best_.accuracy << " % in " << since_best_
           << (since_best_ == 1 ? " evaluation" : " evaluations") << "; ckpt/best.h5 has that network";
    remarks.push_back(remark.str());
  } else {
    evaluate();
  }
  if (trainer_->steps_done() != done) return false;
  settle();  // HDF5 writes for one thread at a time
  const RankRecord times = trainer_->gather_times();
  if (world_.root()) {
    report_->ranks(times);
    const bool finite = std::all_of(evaluated_.begin(), evaluated_.end(), [](const EvaluationRecord& record) {
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
  require_saved();
  return true;
}

int Run::go() {
  plan();
  if (beginning_.finished) {
    if (world_.root()) std::cout << "the run in " << folder_ << " is finished:\n\n" << beginning_.summary << std::flush;
    return static_cast<int>(ExitCode::done);
  }
  trainer_->share_state();
  under_way = 1;
  open_report();
  trainer_->start();
  if (options_.on_bad_steps == "rollback" && !beginning_.own) save(false);  // what the first rollback goes back to
  do
    if (steps()) return static_cast<int>(ExitCode::stopped);
  while (!finish());
  return static_cast<int>(ExitCode::done);
}

/// Plans, trains, evaluates, writes the run's folder; goes on from a checkpoint where there is one. **Collective.**
int run_training(const TrainOrder& order, int argc, char** argv) {
  catch_signals();  // before MPI starts: a job that has just begun may be told to make room already, and end with 75
  TrainOrder own = order;
  try {
    take_network(own);
  } catch (const Error&) {  // rank 0 says so when it reads the weights, if it must
  }
  return with_ranks([&](Communicator& world) { return Run(world, own.options, argc, argv).go(); });
}

std::optional<TrainOrder> parse_train(CommandLine& line) {
  return parse_training(line,
                        "Distributed adversarial training of image classifiers. What a bare\n"
                        "  dat_hpc train --data FILE\n"
                        "does is LAMB with JointSpar: PGD-10, and the exp3 bandit draws 40/54 of the\n"
                        "layers in the mean, which a step trains. Plain PGD training, as published, is\n"
                        "  dat_hpc train --recipe madry --data FILE\n"
                        "and --selector all trains all layers in each step.");
}

}  // namespace

Verb train_verb() {
  return make_verb<TrainOrder>("train", "train a network; the verb when there are options alone", parse_train,
                               run_training);
}

}  // namespace dat
