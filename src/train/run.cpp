// The verbs train, validate and doctor: everything around the steps.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>

#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/run_lock.hpp"
#include "dat/trainer.hpp"
#include "train/advice.hpp"
#include "train/beginning.hpp"
#include "train/ranks.hpp"
#include "train/trainer.hpp"

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
  const std::vector<std::string> notices = device_notices(world, trainer->backend(), options.device);
  std::unique_ptr<Report> report;
  std::unique_ptr<CheckpointFolder> checkpoints;
  together(world, [&] {
    if (!world.root()) return;
    RunFacts facts;
    facts.folder = folder;
    facts.config_toml = config;
    facts.provenance_json = provenance_json(hosts, argc, argv, trainer->backend().description());
    facts.layer_names = trainer->model().parameters.layer_names;
    facts.layer_sizes = trainer->model().parameters.layer_sizes;
    facts.ranks = world.size();
    facts.total_steps = trainer->total_steps();
    facts.steps_per_epoch = trainer->steps_per_epoch();
    facts.epochs = options.warmup_epochs + options.epochs;
    facts.warmup_epochs = options.warmup_epochs;
    facts.attack_steps = trainer->attack_steps();
    facts.progress_seconds = options.progress;
    facts.quiet = options.quiet;
    checkpoints = std::make_unique<CheckpointFolder>(folder + "/ckpt", beginning.own);
    report = std::make_unique<Report>(facts, beginning.metrics_bytes);
    for (const std::string& warning : beginning.warnings) report->warning(warning);
    for (const std::string& warning : trainer->evaluation_attacks().warnings()) report->warning(warning);
    for (const std::string& line : advice(options, trainer->batch(), choose_threads(0, world.node_size())))
      report->warning(line);
    std::ostringstream line;
    line << options.network << " width " << options.width << ", " << trainer->model().parameters.size << " parameters, "
         << world.size() << (world.size() == 1 ? " rank, " : " ranks, ") << trainer->backend().description() << "; "
         << trainer->train_set().size() << " training and " << trainer->test_set().size() << " test images"
         << (options.data.empty() ? " (built-in synthetic set; --data trains on yours)" : "");
    report->message(line.str());
    for (const std::string& notice : notices)
      if (notice.starts_with("warning: "))
        report->warning(notice.substr(std::string("warning: ").size()));
      else
        report->message(notice);
    if (options.verbose)
      for (const std::string& implementation : trainer->implementations()) report->message("  " + implementation);
    line.str("");
    line << "run folder " << folder << ", "
         << plan_text(facts.total_steps, facts.steps_per_epoch, facts.epochs, facts.warmup_epochs) << beginning.what;
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
      state.texts["provenance"] = provenance_json(hosts, argc, argv, trainer->backend().description());
      if (as_best)
        checkpoints->save_best(state);
      else
        checkpoints->save(trainer->steps_done(), state);
    });
    trainer->book(Phase::checkpoint, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };

  const std::int64_t epoch = trainer->steps_per_epoch();
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
  if (evaluation_due != 0 && trainer->steps_done() < trainer->total_steps()) (void)evaluate();
  while (trainer->steps_done() < trainer->total_steps()) {
    const StepRecord& record = trainer->step(signals_seen != 0);
    if (world.root()) report->step(record);
    const std::int64_t done = trainer->steps_done();
    if (options.check_every > 0 && done % options.check_every == 0) trainer->check_replicas();
    const bool finished = done == trainer->total_steps();
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
  const double training_seconds = trainer->wall_time();
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
                    .comm_s = trainer->communication_time(),
                    .valid = valid,
                    .weights_hash = trainer->weights_hash(),
                    .remarks = {}});
  }
  world.barrier();
  return static_cast<int>(ExitCode::done);
}

[[nodiscard]] std::string megabytes(double bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << bytes / 1e6 << " MB";
  return text.str();
}

/// "128, 64 or 32".
[[nodiscard]] std::string numbers(const std::vector<int>& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 < all.size() ? ", " : " or ") + std::to_string(all[i]);
  return text;
}

/// The number that a launcher has announced under one of these names; 1 without a launcher.
[[nodiscard]] int announced(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  return 1;
}

}  // namespace

int run_training(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return train(world, command, argc, argv); });
}

int run_doctor() {
  return with_ranks([](Communicator& world) {
    std::string mine;
    try {
      const auto backend =
          make_backend({.threads = choose_threads(0, world.node_size()), .node_rank = world.node_rank()});
      mine = backend->description();
    } catch (const std::exception&) {
      mine = "nothing: " + current_message();
    }
    const auto hosts = world.gather(host_name());
    const auto devices = world.gather(mine);
    if (!world.root()) return static_cast<int>(ExitCode::done);
    std::cout << version_text() << "\n"
              << cuda_report() << "MPI       " << Communicator::library_version() << ", " << world.size()
              << (world.size() == 1 ? " rank" : " ranks") << "; "
              << (world.takes_device_memory() ? "takes GPU memory"
                                              : "takes host memory only, through which gradients go")
              << "\n\nWhat --device auto gives:\n";
    for (std::size_t rank = 0; rank < hosts.size(); ++rank)
      std::cout << "rank " << rank << " on " << hosts[rank] << ": " << devices[rank] << "\n";
    return static_cast<int>(ExitCode::done);
  });
}

std::string validate_text(const Command& command) {
  const TrainOptions& options = command.train;
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  const Model& model = trainer.model();
  const int ranks = announced({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"});
  const int on_node = announced({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"});
  const EpochPlan plan(trainer.train_set().size(), ranks, options.batch, options.micro_batch);
  const int epochs = options.warmup_epochs + options.epochs;
  const auto all_steps =
      options.max_steps > 0 ? std::min(options.max_steps, plan.steps() * epochs) : plan.steps() * epochs;

  std::map<std::string, std::size_t> memory;
  std::size_t total = 0;
  for (const Backend::Allocation& allocation : trainer.backend().allocations()) {
    memory[allocation.purpose] += allocation.bytes;
    total += allocation.bytes;
  }
  const auto p = trainer.selector().probabilities();
  double elements = 0;
  for (std::size_t d = 0; d < p.size(); ++d)
    elements += p[d] / probability_of_any(p) * static_cast<double>(model.parameters.layer_sizes[d]);
  std::ostringstream warm_start;
  if (const std::int64_t all = trainer.warm_start_bytes(); all > 0) {
    const double image = static_cast<double>(all) / static_cast<double>(trainer.train_set().size());
    warm_start << "warm start       " << megabytes(image * static_cast<double>(plan.per_rank))
               << " of host memory per rank (" << megabytes(static_cast<double>(all))
               << " more on rank 0 while a checkpoint is written), "
               << megabytes(2 * image * static_cast<double>(plan.batch) * (ranks - 1) / ranks)
               << " per step and rank to others\n";
  }
  std::ostringstream text;
  text << "network          " << options.network << ", width " << options.width << "\n"
       << "parameters       " << model.parameters.size << " in " << model.parameters.segments.size() << " tensors, "
       << model.parameters.layers() << " layers (granularity " << options.granularity << ")\n"
       << "forward pass     " << std::fixed << std::setprecision(1) << model.graph.macs() / 1e6
       << " million multiply-adds per image\n"
       << "data             " << trainer.train_set().size() << " training and " << trainer.test_set().size()
       << " test images, " << trainer.train_set().info().classes << " classes, " << trainer.train_set().info().size
       << "x" << trainer.train_set().info().size << "\n"
       << "ranks            " << ranks << ", batch " << plan.batch << " each, micro-batch " << plan.micro_batch()
       << "\n"
       << "length           " << plan_text(all_steps, plan.steps(), epochs, options.warmup_epochs) << "\n"
       << "attack           " << trainer.attack_steps() << " passes forward and back per image"
       << (options.attack_stop >= 0 ? " at most" : "") << ", of " << numbers(trainer.attack_sizes())
       << " images at a time\n"
       << "all-reduce       " << megabytes(4 * elements) << " per step on average, "
       << megabytes(4.0 * static_cast<double>(model.parameters.size)) << " with all layers active\n"
       << "checkpoint       " << megabytes(static_cast<double>(trainer.checkpoint_bytes()))
       << ", the last three are kept\n"
       << warm_start.str() << "memory per rank  " << megabytes(static_cast<double>(total)) << " ("
       << trainer.backend().description() << ")";
  if (trainer.backend().device().kind == DeviceKind::cuda)
    text << ", " << megabytes(static_cast<double>(trainer.backend().spare_memory())) << " of the GPU's remain";
  text << "\n";
  for (const auto& [purpose, bytes] : memory)
    if (bytes >= total / 50)
      text << "  " << std::left << std::setw(24) << purpose << megabytes(static_cast<double>(bytes)) << "\n";
  for (const std::string& line : advice(options, plan.batch, choose_threads(0, on_node)))
    text << "warning          " << line << "\n";
  return text.str();
}

}  // namespace dat
