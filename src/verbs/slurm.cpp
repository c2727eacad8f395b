// The verb slurm: a batch script that trains with the given options.

#include "verbs/slurm.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dat/provenance.hpp"
#include "dat/shell.hpp"
#include "options/ranges.hpp"
#include "options/slurm_time.hpp"
#include "options/train/table.hpp"
#include "printed.hpp"
#include "run/begin/found.hpp"
#include "run/settle_generators.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/role.hpp"
#include "train/planned.hpp"
#include "train/trainer.hpp"
#include "verbs/ranks.hpp"
#include "verbs/slurm_common.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

// Bytes of a process beside its buffers and images: the program, MPI, oneDNN's scratch memory; on a GPU also CUDA's
// context, and what cuDNN and cuBLAS load. Generous: Slurm ends a job that takes more than it has asked for.
constexpr double kProcessBytes = 1e9, kCudaProcessBytes = 6e9;

/// Longest step of which a script is made, in seconds, and most of a node's ranks, cores and GPUs.
constexpr double kLongestStep = 1e6;
constexpr int kMostOfNode = 4096;

/// Text that stays in its line of comment.
[[nodiscard]] std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

struct StepTime {
  double seconds = 0;  ///< 0: not known
  std::string source;
};

/// Mean over a run's steps, its evaluations and checkpoints included.
[[nodiscard]] StepTime step_time_of(const std::string& run) {
  const std::string path = run + "/metrics.jsonl";
  std::ifstream file(path);
  require(file.is_open(), ExitCode::data, "cannot read ", path, "; --like takes the folder of a run (--out of train)");
  std::string line, first, last;
  std::int64_t steps = 0;  // their numbers are counted anew where the batch changes, or the ranks
  while (std::getline(file, line))
    if (line.starts_with("{\"kind\":\"step\"")) {
      if (++steps == 1) first = line;
      last = line;
    }
  const auto number = [](const std::string& row, const char* key) {
    const auto step = nlohmann::json::parse(row, nullptr, false);
    return step.is_object() ? step.value(key, 0.0) : 0.0;
  };
  require(number(last, "step") > 0 && number(last, "wall_time") > 0, ExitCode::data, path,
          " ends in no whole training step");
  double seconds = number(last, "wall_time"), made = steps > 1 ? static_cast<double>(steps) : number(last, "step");
  if (steps > 1 && number(first, "step") > 1) {  // another run's time until its first step, on which it goes on
    seconds -= number(first, "wall_time");
    --made;
  }
  seconds /= made;
  require(seconds <= kLongestStep, ExitCode::data, path, ": steps of ", seconds, " s are longer than ", kLongestStep,
          " s; give --step-seconds");
  return {seconds, "the mean of the " + std::to_string(steps) + " steps of " + one_line(run) +
                       ", its evaluations and checkpoints included"};
}

[[nodiscard]] StepTime step_time(const SlurmOptions& job) {
  if (!job.like.empty()) return step_time_of(job.like);
  return {job.step_seconds, "--step-seconds"};
}

/// "1-02:00:00": whole minutes, the next number of them. Slurm counts them in 32 bits.
constexpr double kLongestJob = 60.0 * 4'000'000'000;
[[nodiscard]] std::string slurm_time(double seconds) {
  if (!(seconds <= kLongestJob)) return "more than 7000 years";
  const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
  std::ostringstream text;
  text << std::setfill('0');
  if (minutes >= 24 * 60) text << minutes / (24 * 60) << "-";
  text << std::setw(2) << minutes / 60 % 24 << ":" << std::setw(2) << minutes % 60 << ":00";
  return text.str();
}

[[nodiscard]] double image_bytes(const Dataset& images) {
  return static_cast<double>(images.info().image_bytes()) * static_cast<double>(images.size());
}

/// Pixels that a rank has in memory, the page cache of plain files included; of images that are decoded, those of the
/// batches that are read ahead.
[[nodiscard]] double held_bytes(const Dataset& images, const TrainOptions& options, const Plan& plan) {
  if (!images.info().decoded) return image_bytes(images);
  return static_cast<double>(images.info().image_bytes()) * plan.micro_batches_of(0) * plan.micro_batch *
         (options.prefetch + 1);
}

/// Host memory of a rank, and in words what it is made of.
struct Memory {
  double bytes = 0;
  std::string source;
};

[[nodiscard]] Memory memory_of(const Splits& splits, const TrainOptions& options, const Plan& plan, double buffers,
                               bool gpu) {
  double images = held_bytes(*splits.train, options, plan) + held_bytes(*splits.test, options, plan);
  if (splits.holdout) images += held_bytes(*splits.holdout, options, plan);
  const double process = gpu ? kCudaProcessBytes : kProcessBytes;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << images / 1e6 << " MB of images, " << buffers / 1e6 << " MB of buffers, "
       << process / 1e6 << " MB for the process" << (gpu ? " with CUDA" : "");
  return {images + buffers + process, text.str()};
}

void take_known_network(TrainOrder& order) {
  try {
    take_network(order);
  } catch (const Error&) {  // the file may come to be before the job begins
  }
}

[[nodiscard]] std::string script(SlurmOrder order) {
  take_known_network(order.training);
  const SlurmOptions& job = order.job;
  const bool gpu = job.gpus_per_node > 0;
  const int ranks = job.nodes * job.ranks_per_node;
  const TrainOptions& whole_training = order.training.options;
  TrainOptions options = part_of(whole_training, epoch_of_largest_part(whole_training));
  static_cast<void>(settle_generators(options, ranks, job.ranks_per_node));
  // The machine that prints the script is hardly the one that runs it: its GPU is not asked.
  options.device = "cpu";
  options.math = "f32";
  options.threads = 1;
  const int trainers = trainers_of(ranks, options);
  const auto world = Communicator::single();
  std::unique_ptr<Trainer> trainer;
  Splits own;
  double buffers = 0;
  if (gpu) {  // its buffers are not the host's
    own = open_splits(options);
  } else {
    trainer = std::make_unique<Trainer>(*world, as_one(options, trainers));
    for (const auto& [purpose, bytes] : memory_of(*trainer, options, trainers)) buffers += static_cast<double>(bytes);
  }
  const Splits& splits = gpu ? own : trainer->splits();
  const Mix mix = mix_of(options, *splits.train);
  const Plan plan(options, mix, trainers);
  require_ranks(options, plan, ranks);
  buffers += warm_start_bytes(options, plan, *splits.train);
  const Memory memory = memory_of(splits, options, plan, buffers, gpu);
  // Rank 0 has what all ranks keep of every image twice while it reads a checkpoint.
  const double at_once = options.warm_start > 0 ? 2 * image_bytes(*splits.train) : 0;
  const StepTime step = step_time(job);
  const std::int64_t steps = steps_of_parts(whole_training, mix, trainers);
  const double whole = step.seconds * static_cast<double>(steps);
  const std::string length = text_of_parts(whole_training, mix, trainers);
  std::string limit = job.time;
  require(!limit.empty() || 1.25 * whole + 600 <= kLongestJob, ExitCode::usage, steps, " steps of ", step.seconds,
          " s each are more time than Slurm can count; give --time, of which the job takes as many as it needs, or "
          "fewer --epochs");
  if (limit.empty()) limit = step.seconds > 0 ? slurm_time(1.25 * whole + 600) : "04:00:00";
  // USR1 comes early enough for the step under way and a checkpoint, as far as Slurm can do that.
  const int lead = std::clamp(static_cast<int>(std::ceil(2 * step.seconds + 60)), 120, 65535);

  std::ostringstream text;
  text << "#!/usr/bin/env bash\n"
       << "# A batch script for Slurm, printed by dat_hpc slurm: trains, stops with a checkpoint before the time limit "
          "or when\n"
       << "# preempted, and goes on by itself. Submit it from the folder that the paths in the last line start from.\n"
       << "#\n# Length: " << length << " on " << ranks << (ranks == 1 ? " rank" : " ranks") << ".\n";
  if (step.seconds > 0)
    text << "# Time: " << step.seconds << " s a step (" << step.source << "), " << slurm_time(whole) << " in all"
         << (job.time.empty() ? "; the limit is a quarter and ten minutes more.\n" : ".\n");
  else
    text << "# Time: nobody has said how long a step takes (--step-seconds, --like RUN); the limit is "
         << (job.time.empty() ? "a guess" : "as given") << ", the job comes\n# back until it is done.\n";
  if (const std::string other = other_ranks(order.training, trainers); !other.empty())
    text << "# Note: " << other << "\n";
  text << "# Memory of a rank: " << memory.source << (at_once > 0 ? "; more on rank 0 while it reads a checkpoint" : "")
       << (gpu ? ".\n# Of the GPU: what dat_hpc validate prints where the GPU is.\n" : ".\n")
       << "#\n#SBATCH --job-name=" << job.job_name << "\n#SBATCH --nodes=" << job.nodes
       << "\n#SBATCH --ntasks-per-node=" << job.ranks_per_node << "\n#SBATCH --cpus-per-task=" << job.cpus_per_rank
       << "\n";
  if (gpu) text << "#SBATCH --gpus-per-node=" << job.gpus_per_node << "\n";
  text << "#SBATCH --mem="
       << static_cast<std::int64_t>(std::ceil((memory.bytes * job.ranks_per_node + at_once) / 1048576)) << "M\n";
  if (!job.partition.empty()) text << "#SBATCH --partition=" << job.partition << "\n";
  if (!job.account.empty()) text << "#SBATCH --account=" << job.account << "\n";
  text << "#SBATCH --time=" << limit << "\n#SBATCH --signal=B:USR1@" << lead
       << "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=" << job.job_name << "-%j.log\n\n";
  if (!job.modules.empty()) text << "DAT_MODULES=${DAT_MODULES:-" << shell_quoted(job.modules) << "}\n";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) text << "[ -n \"${DAT_HPC:-}\" ] || DAT_HPC=" << shell_quoted(program.string()) << "\n";
  text << "\n# --- jobs/slurm/common.sh\n" << kSlurmCommon << "# ---\n\ndat_train";
  for (const std::string& word : job.train) text << " " << shell_quoted(word);
  text << "\n";
  return text.str();
}

/// Options that the short help shows.
const std::vector<std::string> kMainOptions = {
    "help",         "nodes",  "gpus-per-node", "ranks-per-node", "cpus-per-rank", "time",
    "step-seconds", "like",   "job-name",      "partition",      "account",       "modules",
    "recipe",       "config", "data",          "network",        "epochs",        "batch",
    "out"};

const TableOf<SlurmOptions>& job_table() {
  static const auto all = [] {
    using O = SlurmOptions;
    const Range text{.label = "NAME"};
    TableOf<O> table;
    table.group("Job", false);
    table.add("--nodes", &O::nodes, "number of nodes", {.low = 1, .high = 100000});
    table.add("--gpus-per-node", &O::gpus_per_node, "0: ranks compute on CPUs", {.low = 0, .high = kMostOfNode});
    table.add("--ranks-per-node", &O::ranks_per_node, "auto: one for each GPU, or one",
              {.low = 1, .high = kMostOfNode, .automatic = 0});
    table.add("--cpus-per-rank", &O::cpus_per_rank, "cores of a rank", {.low = 1, .high = kMostOfNode});
    table.add("--time", &O::time, "time limit; none: from the seconds of a step, else 4 hours", {.label = "[D-]H:M:S"});
    table.add("--step-seconds", &O::step_seconds, "how long a step takes; auto: not known",
              {.low = 0, .high = kLongestStep, .above = true, .automatic = 0});
    table.not_together({"step-seconds"}, {"like"},
                       "--step-seconds and --like both say how long a step takes; give one of them");
    table.add("--like", &O::like, "a run, on as many ranks, whose steps took as long; none: not known",
              {.label = "RUN"});
    table.add("--job-name", &O::job_name, "of the job", text);
    table.add("--partition", &O::partition, "where it is queued; none: Slurm's default", text);
    table.add("--account", &O::account, "who pays; none: Slurm's default", text);
    table.add("--modules", &O::modules, "environment modules to load, e.g. 'openmpi/4.1 cuda/12.4'",
              {.label = "NAMES"});
    return table;
  }();
  return all;
}

/// Error(usage): text that Slurm would not read as it is meant.
void check_words(const SlurmOptions& o) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:+/@%";
  const auto check = [&](const char* option, const std::string& value, const std::string& allowed) {
    require(value.find_first_not_of(allowed) == std::string::npos, ExitCode::usage, option, " '", value,
            "' would not be read by Slurm as it is meant; use letters, digits and _-.,:+/@% only");
  };
  check("--job-name", o.job_name, plain);
  check("--partition", o.partition, plain);
  check("--account", o.account, plain);
  check("--modules", o.modules, plain + " ");
  require(o.time.find_first_not_of("0123456789-:") == std::string::npos, ExitCode::usage, "--time '", o.time,
          slurm_time_of(o.time).empty() ? "' is no time of Slurm's; write [DAYS-]HOURS:MINUTES:SECONDS, as 24:00:00"
                                        : "' is written --time " + slurm_time_of(o.time) + " for Slurm");
}

/// A script that reserves GPUs trains on them, and one that trains on them reserves some. Error(device): this program,
/// which the script runs, knows no GPU.
void settle_device(SlurmOrder& order) {
  const std::string& device = order.training.options.device;
  const bool gpus = order.job.gpus_per_node > 0;
  require(!gpus || device != "cpu", ExitCode::usage, "--gpus-per-node ", order.job.gpus_per_node,
          " reserves GPUs, which --device cpu leaves idle; leave one of them off");
  const TrainOptions& options = order.training.options;
  const bool wants = device == "cuda" || options.precision != "f32" || options.attack_precision != "f32";
  require(gpus || !wants, ExitCode::usage,
          "--device cuda, and precisions other than f32, need GPUs that Slurm has reserved; add --gpus-per-node N");
  if (!gpus) return;
  require(cuda_version() != "not built", ExitCode::device, "--gpus-per-node ", order.job.gpus_per_node,
          " is for a dat_hpc with CUDA, and this one, which the script would run, was built without: it would train on "
          "the CPUs beside them; build it with 'cmake --preset cuda', or leave the option off");
  if (device != "auto") return;
  std::vector<std::string>& words = order.job.train;
  const auto given = std::find(words.begin(), words.end(), "--device");
  if (given != words.end()) words.erase(given, given + 2);
  words.insert(words.end(), {"--device", "cuda"});
}

int run_slurm(const SlurmOrder& order, int, char**) {
  return print_result([&] { return unchanged(script(order)); });
}

}  // namespace

std::optional<SlurmOrder> parse_slurm(CommandLine& line) {
  SlurmOrder order;
  SlurmOptions& o = order.job;
  Bound job(job_table(), o), training(train_table(), order.training.options);
  line.describe("Prints a batch script for Slurm that trains with the options of 'train' given here.");
  line.show_first(kMainOptions);
  line.add(job);
  line.add_configurable(training, true);
  if (!line.read()) return {};
  job.check(true);
  check_words(o);
  if (o.ranks_per_node == 0) o.ranks_per_node = std::max(1, o.gpus_per_node);
  o.train = line.words_given();
  settle_typed(training, order.training.options);
  order.training.given = line.given();
  order.training.batch_of_recipe = batch_of_recipe(line, training);
  if (line.prints_config()) take_known_network(order.training);
  if (!line.finish()) return {};
  settle_device(order);
  return order;
}

Verb slurm_verb() {
  return make_verb<SlurmOrder>("slurm", "print a batch script that trains with these options", parse_slurm, run_slurm);
}

}  // namespace dat
