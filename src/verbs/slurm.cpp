// The verb slurm: a batch script that trains with the given options.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dat/provenance.hpp"
#include "run/beginning.hpp"
#include "train/trainer.hpp"
#include "verbs/ranks.hpp"
#include "verbs/slurm_common.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

// What a process takes beside its buffers and images: the program, MPI, oneDNN's scratch memory; on a GPU also CUDA's
// context, and what cuDNN and cuBLAS load. Generous: Slurm ends a job that takes more than it has asked for.
constexpr double kProcessBytes = 1e9, kCudaProcessBytes = 6e9;

/// A word as the shell reads it: itself.
[[nodiscard]] std::string shell_word(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+%@";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

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
  std::string line, last;
  while (std::getline(file, line))
    if (line.starts_with("{\"kind\":\"step\"")) last = line;
  const auto step = nlohmann::json::parse(last, nullptr, false);
  const auto number = [&](const char* key) { return step.is_object() ? step.value(key, 0.0) : 0.0; };
  require(number("step") > 0 && number("wall_time") > 0, ExitCode::data, path, " ends in no whole training step");
  return {number("wall_time") / number("step"),
          "the mean of the " + std::to_string(static_cast<std::int64_t>(number("step"))) + " steps of " +
              one_line(run) + ", its evaluations and checkpoints included"};
}

[[nodiscard]] StepTime step_time(const SlurmOptions& job) {
  if (!job.like.empty()) return step_time_of(job.like);
  return {job.step_seconds, "--step-seconds"};
}

/// "1-02:00:00": whole minutes, the next number of them.
[[nodiscard]] std::string slurm_time(double seconds) {
  const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
  std::ostringstream text;
  text << std::setfill('0');
  if (minutes >= 24 * 60) text << minutes / (24 * 60) << "-";
  text << std::setw(2) << minutes / 60 % 24 << ":" << std::setw(2) << minutes % 60 << ":00";
  return text.str();
}

[[nodiscard]] double image_bytes(const Dataset& images) {
  return 3.0 * images.info().size * images.info().size * static_cast<double>(images.size());
}

/// Host memory of a rank, and in words what it is made of.
struct Memory {
  double bytes = 0;
  std::string source;
};

[[nodiscard]] Memory memory_of(const Splits& splits, double buffers, bool gpu) {
  double images = image_bytes(*splits.train) + image_bytes(*splits.test);
  if (splits.holdout) images += image_bytes(*splits.holdout);
  const double process = gpu ? kCudaProcessBytes : kProcessBytes;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << images / 1e6 << " MB of images, " << buffers / 1e6 << " MB of buffers, "
       << process / 1e6 << " MB for the process" << (gpu ? " with CUDA" : "");
  return {images + buffers + process, text.str()};
}

[[nodiscard]] std::string script(Command command) {
  try {
    take_network(command);
  } catch (const Error&) {  // the file may come to be before the job begins
  }
  const SlurmOptions& job = command.slurm;
  const bool gpu = job.gpus_per_node > 0;
  const int ranks = job.nodes * job.ranks_per_node;
  TrainOptions options = command.train;
  // The machine that prints the script is hardly the one that runs it: its GPU is not asked.
  options.device = "cpu";
  options.attack_precision = "f32";
  options.threads = 1;
  const auto world = Communicator::single();
  std::unique_ptr<Trainer> trainer;
  Splits own;
  double buffers = 0;
  if (gpu) {  // its buffers are not the host's
    own = open_splits(options);
  } else {
    trainer = std::make_unique<Trainer>(*world, options);
    for (const Backend::Allocation& allocation : trainer->replica().backend().allocations())
      buffers += static_cast<double>(allocation.bytes);
  }
  const Splits& splits = gpu ? own : trainer->splits();
  const Plan plan(options, splits.train->size(), ranks);
  const Memory memory = memory_of(splits, buffers, gpu);
  const StepTime step = step_time(job);
  const double whole = step.seconds * static_cast<double>(plan.steps);
  std::string limit = job.time;
  if (limit.empty()) limit = step.seconds > 0 ? slurm_time(1.25 * whole + 600) : "04:00:00";
  // USR1 comes early enough for the step under way and a checkpoint.
  const int lead = std::max(120, static_cast<int>(std::ceil(2 * step.seconds + 60)));

  std::ostringstream text;
  text << "#!/usr/bin/env bash\n"
       << "# A batch script for Slurm, printed by dat_hpc slurm: trains, stops with a checkpoint before the time limit "
          "or when\n"
       << "# preempted, and goes on by itself. Submit it from the folder that the paths in the last line start from.\n"
       << "#\n# Length: " << plan.text() << " on " << ranks << (ranks == 1 ? " rank" : " ranks") << ".\n";
  if (step.seconds > 0)
    text << "# Time: " << step.seconds << " s a step (" << step.source << "), " << slurm_time(whole) << " in all"
         << (job.time.empty() ? "; the limit is a quarter and ten minutes more.\n" : ".\n");
  else
    text << "# Time: nobody has said how long a step takes (--step-seconds, --like RUN); the limit is "
         << (job.time.empty() ? "a guess" : "as given") << ", the job comes\n# back until it is done.\n";
  text << "# Memory of a rank: " << memory.source
       << (gpu ? ".\n# Of the GPU: what dat_hpc validate prints where the GPU is.\n" : ".\n")
       << "#\n#SBATCH --job-name=" << job.job_name << "\n#SBATCH --nodes=" << job.nodes
       << "\n#SBATCH --ntasks-per-node=" << job.ranks_per_node << "\n#SBATCH --cpus-per-task=" << job.cpus_per_rank
       << "\n";
  if (gpu) text << "#SBATCH --gpus-per-node=" << job.gpus_per_node << "\n";
  text << "#SBATCH --mem=" << static_cast<std::int64_t>(std::ceil(memory.bytes * job.ranks_per_node / 1048576))
       << "M\n";
  if (!job.partition.empty()) text << "#SBATCH --partition=" << job.partition << "\n";
  if (!job.account.empty()) text << "#SBATCH --account=" << job.account << "\n";
  text << "#SBATCH --time=" << limit << "\n#SBATCH --signal=B:USR1@" << lead
       << "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=" << job.job_name << "-%j.log\n\n";
  if (!job.modules.empty()) text << "DAT_MODULES=${DAT_MODULES:-" << shell_word(job.modules) << "}\n";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) text << "[ -n \"${DAT_HPC:-}\" ] || DAT_HPC=" << shell_word(program.string()) << "\n";
  text << "\n# --- jobs/slurm/common.sh\n" << kSlurmCommon << "# ---\n\ndat_train";
  for (const std::string& word : job.train) text << " " << shell_word(word);
  text << "\n";
  return text.str();
}

}  // namespace

int run_slurm(const Command& command, int, char**) {
  return print_once([&] { return script(command); });
}

}  // namespace dat
