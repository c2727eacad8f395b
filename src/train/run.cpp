// The verbs train, eval and validate: everything around the steps.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/trainer.hpp"
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

/// Options that may change between the parts of a run: they do not touch its numbers.
[[nodiscard]] std::set<std::string> free_keys(const TrainOptions& options) {
  std::set<std::string> keys = {
      "out",      "resume",     "device",     "threads",           "quiet", "resident",    "verbose",
      "progress", "eval-every", "limit-test", "eval-attack-steps", "data",  "check-every", "checkpoint-every"};
  if (options.schedule == "step") keys.insert("max-steps");
  return keys;
}

/// Error(usage) that lists the options in which a run's earlier configuration differs from this one.
void require_same_options(const std::string& earlier, const std::string& now, const TrainOptions& options,
                          const std::string& where) {
  const auto lines = [](const std::string& toml) {
    std::map<std::string, std::string> all;
    std::istringstream text(toml);
    for (std::string line; std::getline(text, line);)
      if (const auto at = line.find(" = "); at != std::string::npos && line[0] != '#')
        all[line.substr(0, at)] = line.substr(at + 3);
    return all;
  };
  const auto before = lines(earlier), after = lines(now);
  const auto ignored = free_keys(options);
  std::string differing;
  for (const auto& [key, value] : after) {
    const auto found = before.find(key);
    if (found == before.end() || found->second == value || ignored.contains(key)) continue;
    differing += (differing.empty() ? "" : ", ") + key + " (was " + found->second + ", is " + value + ")";
  }
  require(differing.empty(), ExitCode::usage, where, " was made with other options: ", differing,
          "; repeat them, or choose another --out");
}

[[nodiscard]] std::string default_folder() {
  if (const char* job = std::getenv("SLURM_JOB_ID")) return std::string("runs/slurm-") + job;
  const std::time_t now = std::time(nullptr);
  std::ostringstream name;
  name << "runs/" << std::put_time(std::gmtime(&now), "%Y%m%dT%H%M%SZ");
  return name.str();
}

/// The checkpoint to go on from, on rank 0. Nothing is written here.
[[nodiscard]] std::optional<Checkpoint> find_checkpoint(const Command& command, const std::string& folder) {
  const TrainOptions& options = command.train;
  std::error_code unreadable;  // then the report says why nothing can be written there
  const bool occupied = fs::exists(folder + "/metrics.jsonl", unreadable);
  require(options.resume == "auto" || !occupied, ExitCode::usage, "--out ", folder,
          " holds a run already: choose another folder, or --resume auto to go on");
  if (options.resume == "never") return {};
  std::optional<Checkpoint> checkpoint;
  std::string where = folder;
  if (options.resume != "auto") {
    where = options.resume;
    checkpoint = read_checkpoint(where);
  } else if (fs::exists(folder + "/ckpt", unreadable)) {
    checkpoint = CheckpointFolder::newest_in(
        folder + "/ckpt", [](const std::string& warning) { std::cerr << "dat_hpc: warning: " + warning + "\n"; });
  }
  std::string earlier;
  if (checkpoint) {
    earlier = checkpoint->texts["config_toml"];
  } else if (std::ifstream file(folder + "/config.resolved.toml"); occupied && file) {
    earlier.assign(std::istreambuf_iterator<char>(file), {});
  }
  require_same_options(earlier, command.resolved_toml, options, where);
  return checkpoint;
}

int train(Communicator& world, const Command& command, int argc, char** argv) {
  const TrainOptions& options = command.train;
  std::string folder = options.out.empty() ? default_folder() : options.out;
  world.broadcast(folder);
  catch_signals();

  std::unique_ptr<Trainer> trainer;
  std::optional<Checkpoint> checkpoint;
  together(world, [&] {
    trainer = std::make_unique<Trainer>(world, options);
    if (!world.root()) return;
    checkpoint = find_checkpoint(command, folder);
    if (checkpoint) trainer->restore(*checkpoint);
  });
  trainer->share_state();

  const std::vector<std::string> hosts = world.gather(host_name());
  const std::vector<std::string> notices = device_notices(world, trainer->backend(), options.device);
  std::unique_ptr<Report> report;
  std::unique_ptr<CheckpointFolder> checkpoints;
  together(world, [&] {
    if (!world.root()) return;
    RunFacts facts;
    facts.folder = folder;
    facts.config_toml = command.resolved_toml;
    facts.provenance_json = provenance_json(hosts, argc, argv, trainer->backend().description());
    facts.layer_names = trainer->model().parameters.layer_names;
    facts.layer_sizes = trainer->model().parameters.layer_sizes;
    facts.ranks = world.size();
    facts.total_steps = trainer->total_steps();
    facts.attack_steps = trainer->attack_steps();
    facts.progress_seconds = options.progress;
    facts.quiet = options.quiet;
    // A checkpoint from elsewhere starts a new record; one's own continues it.
    const bool own = checkpoint && options.resume == "auto";
    const auto bytes = own ? checkpoint->integers.at("metrics_bytes") : -1;
    report = std::make_unique<Report>(facts, bytes);
    checkpoints = std::make_unique<CheckpointFolder>(folder + "/ckpt");
    std::ostringstream line;
    line << options.network << " width " << options.width << ", " << trainer->model().parameters.size << " parameters, "
         << world.size() << (world.size() == 1 ? " rank, " : " ranks, ") << trainer->backend().description() << "; "
         << trainer->train_set().size() << " training and " << trainer->test_set().size() << " test images"
         << (options.data.empty() ? " (built-in synthetic set; --data trains on yours)" : "");
    report->message(line.str());
    for (const std::string& notice : notices) report->message(notice);
    if (options.verbose)
      for (const std::string& implementation : trainer->implementations()) report->message("  " + implementation);
    line.str("");
    line << "run folder " << folder << ", " << trainer->total_steps() << " steps of " << trainer->steps_per_epoch()
         << " an epoch" << (checkpoint ? ", going on after step " + std::to_string(trainer->steps_done()) : "");
    report->message(line.str());
  });
  // A stop comes before the evaluation of its step, which the next part of the run makes up for.
  std::int64_t evaluation_due = checkpoint ? checkpoint->integers["evaluation_due"] : 0;
  world.broadcast(&evaluation_due, sizeof evaluation_due);
  checkpoint.reset();
  trainer->start();

  const auto save = [&] {
    const auto begin = std::chrono::steady_clock::now();
    const RankRecord times = trainer->gather_times();
    Checkpoint state = trainer->capture();
    together(world, [&] {
      if (!world.root()) return;
      for (const Checkpoint::Array& array : state.arrays)
        require(std::all_of(array.values.begin(), array.values.end(), [](float value) { return std::isfinite(value); }),
                ExitCode::numerical, array.name, " is not finite after step ", trainer->steps_done(),
                ", which is not saved: lower --lr or raise --warmup-epochs");
      report->ranks(times);
      state.integers["metrics_bytes"] = report->metrics_bytes();
      state.integers["evaluation_due"] = evaluation_due;
      state.texts["config_toml"] = command.resolved_toml;
      state.texts["provenance"] = provenance_json(hosts, argc, argv, trainer->backend().description());
      checkpoints->save(trainer->steps_done(), state);
    });
    trainer->book(Phase::checkpoint, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };

  const std::int64_t epoch = trainer->steps_per_epoch();
  const std::int64_t checkpoint_every = options.checkpoint_every > 0 ? options.checkpoint_every : epoch;
  const auto evaluate_if_due = [&] {
    if (evaluation_due == 0) return;
    const EvaluationRecord evaluation = trainer->evaluate();
    if (world.root()) report->evaluation(evaluation);
    evaluation_due = 0;
  };
  evaluate_if_due();
  while (trainer->steps_done() < trainer->total_steps()) {
    const StepRecord& record = trainer->step(signals_seen != 0);
    if (world.root()) report->step(record);
    const std::int64_t done = trainer->steps_done();
    if (options.check_every > 0 && done % options.check_every == 0) trainer->check_replicas();
    const bool finished = done == trainer->total_steps();
    evaluation_due = !finished && options.eval_every > 0 && done % (epoch * options.eval_every) == 0;
    if (trainer->stop_agreed() && !finished) {
      save();
      if (world.root())
        report->message("stopped on a signal after step " + std::to_string(done) +
                        "; the same command goes on from here");
      return static_cast<int>(ExitCode::stopped);
    }
    evaluate_if_due();
    if (finished || done % checkpoint_every == 0) save();
  }

  trainer->check_replicas();
  const double training_seconds = trainer->wall_time();
  const EvaluationRecord evaluation = trainer->evaluate();
  const RankRecord times = trainer->gather_times();
  if (world.root()) {
    report->evaluation(evaluation);
    report->ranks(times);
    report->finish({.clean_acc = evaluation.clean_acc,
                    .adv_acc = evaluation.adv_acc,
                    .time_s = training_seconds,
                    .comm_s = trainer->communication_time(),
                    .attack_steps = evaluation.attack_steps,
                    .valid = evaluation.images == trainer->test_set().size() && std::isfinite(evaluation.adv_loss) &&
                             std::isfinite(evaluation.clean_loss),
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

/// The number of ranks that a launcher has announced; 1 without a launcher.
[[nodiscard]] int ranks_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"})
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  return 1;
}

int evaluate(Communicator& world, const Command& command) {
  const EvalOptions& options = command.eval;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Images> images;
  std::unique_ptr<FrozenProgram> program;
  std::unique_ptr<FrozenObjective> objective;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<Attack> attack;
  std::string path = options.checkpoint;
  together(world, [&] {
    std::optional<Checkpoint> checkpoint;
    std::error_code unreadable;
    if (fs::is_directory(path, unreadable)) {
      const std::string folder = fs::exists(path + "/ckpt", unreadable) ? path + "/ckpt" : path;
      checkpoint = CheckpointFolder::newest_in(folder, [&](const std::string& warning) {
        if (world.root()) std::cerr << "dat_hpc: warning: " + warning + "\n";
      });
      require(checkpoint.has_value(), ExitCode::checkpoint, "there is no checkpoint in ", folder);
    } else {
      checkpoint = read_checkpoint(path);
    }
    const TrainOptions trained = parse_train_options(checkpoint->texts["config_toml"], path);
    TrainOptions wanted = trained;
    if (!options.data.empty()) wanted.data = options.data;
    data = open_split(wanted, options.split, options.limit);
    const DatasetInfo& info = data->info();
    // The classes are the network's: the data may have fewer.
    const auto head = std::find_if(checkpoint->arrays.begin(), checkpoint->arrays.end(),
                                   [](const Checkpoint::Array& a) { return a.name == "param/linear.weight"; });
    require(head != checkpoint->arrays.end() && !head->shape.empty() && head->shape[0] >= info.classes,
            ExitCode::checkpoint, path, " holds no network for ", info.classes, " classes");
    backend = make_backend({.device = options.device,
                            .threads = choose_threads(options.threads, world.node_size()),
                            .node_rank = world.node_rank(),
                            .math = options.math,
                            .deterministic = options.deterministic});
    model = std::make_unique<Model>(*backend,
                                    networks().at(trained.network)({.width = trained.width,
                                                                    .size = info.size,
                                                                    .channels = info.channels,
                                                                    .classes = static_cast<int>(head->shape[0])}),
                                    Granularity::tensor);
    load_network(*checkpoint, *model);
    const auto share = (data->size() + world.size() - 1) / world.size();
    const int batch = static_cast<int>(std::min<std::int64_t>(options.batch, share));
    images = std::make_unique<Images>(*backend, info, batch);
    program = std::make_unique<FrozenProgram>(*model, batch);
    objective = std::make_unique<FrozenObjective>(*images, *program, static_cast<int>(head->shape[0]));
    evaluator = std::make_unique<Evaluator>(world, *data, nullptr, *images, *objective);
    attack = attacks().at(options.attack)({.eps = options.eps, .alpha = options.alpha, .steps = options.attack_steps});
    backend->commit_workspace();
  });
  for (const std::string& notice : device_notices(world, *backend, options.device))
    if (world.root() && !options.quiet) std::cerr << "dat_hpc: " + notice + "\n";
  EvaluationRecord record;
  const auto begin = std::chrono::steady_clock::now();
  evaluator->run(*attack, options.seed, record);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!world.root()) return static_cast<int>(ExitCode::done);
  std::cout << path << ": " << record.images << " " << options.split << " images, eps " << options.eps << std::fixed
            << std::setprecision(4) << "\n  clean  accuracy " << record.clean_acc << "  loss " << record.clean_loss
            << "\n  " << options.attack << (options.attack == "pgd" ? std::to_string(options.attack_steps) : "")
            << "  accuracy " << record.adv_acc << "  loss " << record.adv_loss
            << "\nFinal: clean_acc=" << record.clean_acc << " " << options.attack
            << (options.attack == "pgd" ? std::to_string(options.attack_steps) : "") << "_acc=" << record.adv_acc
            << std::setprecision(1) << " time_s=" << seconds << " VALID\n";
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_training(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return train(world, command, argc, argv); });
}

int run_evaluation(const Command& command, int, char**) {
  return with_ranks([&](Communicator& world) { return evaluate(world, command); });
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
  const int ranks = ranks_from_environment();
  const EpochPlan plan(trainer.train_set().size(), ranks, options.batch, options.micro_batch);

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
       << "ranks            " << ranks << ", batch " << options.batch << " each, micro-batch "
       << (options.micro_batch > 0 ? options.micro_batch : options.batch) << "\n"
       << "steps per epoch  " << plan.steps() << "; " << options.warmup_epochs << " warm-up + " << options.epochs
       << " epochs = " << plan.steps() * (options.warmup_epochs + options.epochs) << " steps"
       << (options.max_steps > 0 ? ", ended by --max-steps " + std::to_string(options.max_steps) : "") << "\n"
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
  return text.str();
}

}  // namespace dat
