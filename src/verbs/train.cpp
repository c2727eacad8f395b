// The verb train: everything around the steps.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/run_lock.hpp"
#include "train/advice.hpp"
#include "train/beginning.hpp"
#include "train/trainer.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t signals_seen = 0;
volatile std::time_t first_signal = 0;

/// The first signal asks for an end after the step. Job systems send it several times within a moment; one that comes
/// seconds later means it: end at once.
extern "C" void on_signal(int) {
  constexpr std::time_t kGraceSeconds = 2;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (signals_seen == 0) first_signal = now.tv_sec;
  if (signals_seen != 0 && now.tv_sec > first_signal + kGraceSeconds) _exit(static_cast<int>(ExitCode::stopped) + 1);
  signals_seen = 1;
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaction(signal, &action, nullptr);
}

[[nodiscard]] std::string default_folder() {
  if (const char* job = std::getenv("SLURM_JOB_ID")) return std::string("runs/slurm-") + job;
  const std::time_t now = std::time(nullptr);
  std::ostringstream name;
  name << "runs/" << std::put_time(std::gmtime(&now), "%Y%m%dT%H%M%SZ");
  return name.str();
}

int train(Communicator& world, const Command& command, int argc, char** argv) {
  const TrainOptions& options = command.train;
  std::string folder = options.out.empty() ? default_folder() : options.out;
  world.broadcast(folder);
  catch_signals();

  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<RunLock> lock;
  Beginning beginning;
  std::string config;
  together(world, [&] {
    trainer = std::make_unique<Trainer>(world, options);
    if (!world.root()) return;
    TrainOptions resolved = trainer->resolved();
    resolved.out = folder;
    config = toml_of(resolved);
    // Nothing in the folder is looked at before it is this process's alone.
    lock = std::make_unique<RunLock>(folder, [](const std::string& message) {
      std::cerr << "dat_hpc: " + message + "\n" << std::flush;
    });
    beginning = begin(resolved, config, folder, *trainer);
  });
  std::int64_t finished_before = beginning.finished ? 1 : 0;
  world.broadcast(&finished_before, sizeof finished_before);
  if (finished_before != 0) {
    if (world.root()) std::cout << "the run in " << folder << " is finished:\n\n" << beginning.summary << std::flush;
    return static_cast<int>(ExitCode::done);
  }
  trainer->share_state();

  const std::vector<std::string> hosts = world.gather(host_name());
  const std::vector<std::string> notices = device_notices(world, trainer->replica().backend(), options.device);
  std::unique_ptr<Report> report;
  std::unique_ptr<CheckpointFolder> checkpoints;
  together(world, [&] {
    if (!world.root()) return;
    RunFacts facts;
    facts.folder = folder;
    facts.config_toml = config;
    facts.provenance_json = provenance_json(hosts, argc, argv, trainer->replica().backend().description());
    facts.layer_names = trainer->model().parameters.layer_names;
    facts.layer_sizes = trainer->model().parameters.layer_sizes;
    facts.ranks = world.size();
    facts.total_steps = trainer->plan().steps;
    facts.steps_per_epoch = trainer->plan().steps_per_epoch;
    facts.epochs = trainer->plan().epochs;
    facts.warmup_epochs = options.warmup_epochs;
    facts.attack_steps = trainer->attack().gradient_evaluations();
    facts.progress_seconds = options.progress;
    facts.quiet = options.quiet;
    checkpoints = std::make_unique<CheckpointFolder>(folder + "/ckpt", beginning.own);
    report = std::make_unique<Report>(facts, beginning.metrics_bytes);
    for (const std::string& warning : beginning.warnings) report->warning(warning);
    for (const std::string& warning : trainer->evaluation_attacks().warnings()) report->warning(warning);
    for (const std::string& line : advice(options, trainer->plan().batch, choose_threads(0, world.node_size())))
      report->warning(line);
    std::ostringstream line;
    line << options.network << " width " << options.width << ", " << trainer->model().parameters.size << " parameters, "
         << world.size() << (world.size() == 1 ? " rank, " : " ranks, ") << trainer->replica().backend().description()
         << "; " << trainer->splits().train->size() << " training and " << trainer->splits().test->size()
         << " test images" << (options.data.empty() ? " (built-in synthetic set; --data trains on yours)" : "");
    report->message(line.str());
    for (const std::string& notice : notices)
      if (notice.starts_with("warning: "))
        report->warning(notice.substr(std::string("warning: ").size()));
      else
        report->message(notice);
    if (options.verbose)
      for (const std::string& implementation : trainer->replica().implementations())
        report->message("  " + implementation);
    line.str("");
    line << "run folder " << folder << ", " << trainer->plan().text() << beginning.what;
    report->message(line.str());
  });
  // A stop comes before the evaluation of its step, which the next part of the run makes up for.
  std::int64_t evaluation_due = beginning.evaluation_due;
  world.broadcast(&evaluation_due, sizeof evaluation_due);
  double best = beginning.best;
  world.broadcast(&best, sizeof best);
  trainer->start();

  // Of a step; or, of the best weights so far, where it is not of the run's own series.
  const auto save = [&](bool as_best) {
    const auto begin = std::chrono::steady_clock::now();
    const RankRecord times = as_best ? RankRecord{} : trainer->gather_times();
    Checkpoint state = trainer->capture();
    together(world, [&] {
      if (!world.root()) return;
      for (const Checkpoint::Array& array : state.arrays)
        require(std::all_of(array.values.begin(), array.values.end(), [](float value) { return std::isfinite(value); }),
                ExitCode::numerical, array.name, " is not finite after step ", trainer->steps_done(),
                ", which is not saved: lower --lr or raise --warmup-epochs");
      if (!as_best) report->ranks(times);
      state.integers["metrics_bytes"] = report->metrics_bytes();
      state.integers["evaluation_due"] = evaluation_due;
      state.texts["config_toml"] = config;
      state.doubles["best"] = {best};
      state.texts["provenance"] = provenance_json(hosts, argc, argv, trainer->replica().backend().description());
      if (as_best)
        checkpoints->save_best(state);
      else
        checkpoints->save(trainer->steps_done(), state);
    });
    trainer->timer().book(Phase::checkpoint,
                          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };

  const std::int64_t epoch = trainer->plan().steps_per_epoch;
  const std::int64_t checkpoint_every = options.checkpoint_every > 0 ? options.checkpoint_every : epoch;
  // Records it; keeps the weights that are best under the attack that hurts them most, on what is held out.
  const auto evaluate = [&] {
    std::vector<EvaluationRecord> records = trainer->evaluate();
    if (world.root()) report->evaluation(records);
    double worst = 1;
    for (const EvaluationRecord& record : records)
      if (record.split == "holdout") worst = std::min(worst, record.adv_acc);
    evaluation_due = 0;
    if (options.holdout > 0 && worst > best) {
      best = worst;
      save(true);
    }
    return records;
  };
  if (evaluation_due != 0 && trainer->steps_done() < trainer->plan().steps) (void)evaluate();
  while (trainer->steps_done() < trainer->plan().steps) {
    const StepRecord& record = trainer->step(signals_seen != 0);
    if (world.root()) report->step(record);
    const std::int64_t done = trainer->steps_done();
    if (options.check_every > 0 && done % options.check_every == 0) trainer->check_replicas();
    const bool finished = done == trainer->plan().steps;
    evaluation_due = options.eval_every > 0 && done % (epoch * options.eval_every) == 0;
    if (trainer->stop_agreed() && !finished) {
      save(false);
      if (world.root())
        report->message("stopped on a signal after step " + std::to_string(done) +
                        "; the same command goes on from here");
      return static_cast<int>(ExitCode::stopped);
    }
    if (evaluation_due != 0 && !finished) (void)evaluate();
    if (finished || done % checkpoint_every == 0) save(false);
  }

  trainer->check_replicas();
  const double training_seconds = trainer->timer().wall_time();
  std::vector<EvaluationRecord> evaluations = evaluate();
  const RankRecord times = trainer->gather_times();
  if (world.root()) {
    report->ranks(times);
    const bool valid = std::all_of(evaluations.begin(), evaluations.end(), [](const EvaluationRecord& record) {
      return std::isfinite(record.adv_loss) && std::isfinite(record.clean_loss);
    });
    std::erase_if(evaluations, [](const EvaluationRecord& record) { return record.split != "test"; });
    report->finish({.evaluations = evaluations,
                    .time_s = training_seconds,
                    .comm_s = trainer->timer().reduction_time(),
                    .valid = valid,
                    .weights_hash = trainer->weights_hash(),
                    .remarks = {}});
  }
  world.barrier();
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_training(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return train(world, command, argc, argv); });
}

}  // namespace dat
