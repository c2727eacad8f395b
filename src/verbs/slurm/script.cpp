// The batch script of the verb slurm.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <tuple>

#include "dat/shell.hpp"
#include "verbs/slurm/needs.hpp"

namespace dat {

namespace {

/// "1-02:00:00": whole minutes, the next number of them. Slurm counts them in 32 bits.
constexpr double kLongestJob = 60.0 * 4'000'000'000;
[[nodiscard]] std::string slurm_time(double seconds) {
  if (!(seconds <= kLongestJob)) return "more than 7000 years";
  const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
  const std::string days = minutes >= 24 * 60 ? fmt::format("{}-", minutes / (24 * 60)) : "";
  return days + fmt::format("{:02}:{:02}:00", minutes / 60 % 24, minutes % 60);
}

/// What the largest and longest of the trainings need, each figure for itself. Error: one of them cannot begin.
[[nodiscard]] JobNeeds needs_of_all(const SlurmOrder& order) {
  if (order.points.empty()) return needs_of(order.training, order.job);
  JobNeeds most;
  for (const SweptTraining& point : order.points) {
    JobNeeds own;
    at_point(point, [&] { own = needs_of(point, order.job); });
    if (std::pair(own.node_bytes, own.memory) > std::pair(most.node_bytes, most.memory))
      std::tie(most.node_bytes, most.memory) = std::tie(own.node_bytes, own.memory);
    if (std::pair(own.seconds, own.steps) > std::pair(most.seconds, most.steps))
      std::tie(most.seconds, most.steps, most.length, most.source) =
          std::tie(own.seconds, own.steps, own.length, own.source);
    most.step_seconds = std::max(most.step_seconds, own.step_seconds);
  }
  return most;
}

[[nodiscard]] std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + shell_quoted(word);
  return text;
}

/// Slurm's settings, a comment each. limit: of time. lead: seconds before it in which the job is told of its end.
[[nodiscard]] std::string settings(const SlurmOrder& order, const JobNeeds& needs, const std::string& limit, int lead) {
  const SlurmOptions& job = order.job;
  const std::vector<std::string> words = sbatch_words(job.sbatch);
  std::ostringstream text;
  text << "#SBATCH --job-name=" << job.job_name << "\n#SBATCH --nodes=" << job.nodes
       << "\n#SBATCH --ntasks-per-node=" << job.ranks_per_node << "\n#SBATCH --cpus-per-task=" << job.cpus_per_rank
       << "\n";
  if (job.gpus_per_node > 0) text << "#SBATCH --gpus-per-node=" << job.gpus_per_node << "\n";
  if (std::ranges::none_of(words, sets_memory))
    text << "#SBATCH --mem=" << static_cast<std::int64_t>(std::ceil(needs.node_bytes / 1048576)) << "M\n";
  if (!order.points.empty()) text << "#SBATCH --array=1-" << order.points.size() << "\n";
  text << "#SBATCH --time=" << limit << "\n#SBATCH --signal=B:USR1@" << lead
       << "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=" << job.job_name
       << (order.points.empty() ? "-%j" : "-%A_%a") << ".log\n";
  for (const std::string& word : words) text << "#SBATCH " << word << "\n";
  return text.str();
}

/// The options of each task of a sweep, and the job that makes its table.
[[nodiscard]] std::string tasks(const SlurmOrder& order) {
  const std::string out = std::filesystem::path(order.points.front().options.out).parent_path();
  std::vector<std::string> of_table = sbatch_words(order.job.sbatch);  // which needs less memory
  std::erase_if(of_table, sets_memory);
  std::ostringstream text;
  text << "\ncase ${SLURM_ARRAY_TASK_ID:-} in\n";
  for (std::size_t k = 0; k < order.points.size(); ++k)
    text << "  " << k + 1 << ") set --" << quoted(order.points[k].own) << " ;;\n";
  text << "  *) dat_say \"this is a sweep of " << order.points.size()
       << " points; submit it with sbatch, which makes a task of each\" && exit 2 ;;\n"
       << "esac\n\n"
       << "# The first task asks for the table of all of them: a job that waits until none runs or comes back.\n"
       << "dat_out=" << shell_quoted(out) << "\n"
       << "dat_table() {\n"
       << "  mkdir -p \"$dat_out\"\n"
       << "  dat_prepare\n"
       << "  sbatch" << quoted(of_table) << " --job-name=" << order.job.job_name
       << "-table --nodes=1 --ntasks=1 --mem=2G --time=00:30:00 \\\n"
       << "    --output=" << order.job.job_name << "-table-%j.log --dependency=\"afterany:$SLURM_ARRAY_JOB_ID\" < <(\n"
       << "    printf '#!/usr/bin/env bash\\n%q compare %q/*=*/ >%q\\n' \"$dat_program\" \"$dat_out\" "
       << "\"$dat_out/compare.txt\") ||\n"
       << "    dat_say \"no table is made; when all tasks are done: $dat_program compare $dat_out/*=*/\"\n"
       << "}\n"
       << "if [ \"$SLURM_ARRAY_TASK_ID\" = \"$SLURM_ARRAY_TASK_MIN\" ] && [ \"${SLURM_RESTART_COUNT:-0}\" -eq 0 ]; "
          "then\n"
       << "  dat_table &\n"
       << "  trap \"wait $!\" EXIT\n"
       << "fi\n";
  return text.str();
}

}  // namespace

std::string script_of(const SlurmOrder& order) {
  const SlurmOptions& job = order.job;
  const bool gpu = job.gpus_per_node > 0, sweep = !order.points.empty();
  const int ranks = job.nodes * job.ranks_per_node;
  const JobNeeds needs = needs_of_all(order);
  std::string limit = job.time;
  require(!limit.empty() || 1.25 * needs.seconds + 600 <= kLongestJob, ExitCode::usage, needs.steps, " steps of ",
          needs.step_seconds,
          " s each are more time than Slurm can count; give --time, of which the job takes as many as it needs, or "
          "fewer --epochs");
  if (limit.empty()) limit = needs.step_seconds > 0 ? slurm_time(1.25 * needs.seconds + 600) : "04:00:00";
  // USR1 comes early enough for the step under way and a checkpoint, as far as Slurm can do that.
  const int lead = std::clamp(static_cast<int>(std::ceil(2 * needs.step_seconds + 60)), 120, 65535);

  std::ostringstream text;
  text << "#!/usr/bin/env bash\n"
       << "# A batch script for Slurm, printed by dat_hpc slurm: trains, stops with a checkpoint before the time limit "
          "or when\n"
       << "# preempted, and goes on by itself. Submit it from the folder that the paths in the last line start from.\n"
       << "#\n";
  if (sweep)
    text << "# Sweep: " << order.points.size()
         << " trainings, a task of an array each, and a job after them that makes "
         << "a table of all.\n# What follows is of the longest and the largest of them.\n";
  text << "# Length: " << needs.length << " on " << ranks << (ranks == 1 ? " rank" : " ranks") << ".\n";
  if (needs.step_seconds > 0)
    text << "# Time: " << needs.step_seconds << " s a step (" << needs.source << "), " << slurm_time(needs.seconds)
         << " in all" << (job.time.empty() ? "; the limit is a quarter and ten minutes more.\n" : ".\n");
  else
    text
        << "# Time: nobody has said how long a step takes (--step-seconds, --like RUN, --calibration FILE); the limit\n"
        << "# is " << (job.time.empty() ? "a guess" : "as given") << ", the job comes back until it is done.\n";
  text << "# Memory of a rank: " << needs.memory
       << (gpu ? ".\n# Of the GPU: what dat_hpc validate prints where the GPU is.\n" : ".\n") << "#\n"
       << settings(order, needs, limit, lead) << "\n";
  if (!job.modules.empty()) text << "DAT_MODULES=${DAT_MODULES:-" << shell_quoted(job.modules) << "}\n";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) text << "[ -n \"${DAT_HPC:-}\" ] || DAT_HPC=" << shell_quoted(program.string()) << "\n";
  text << "\n# --- jobs/slurm/common.sh\n" << kSlurmCommon << "# ---\n";
  if (sweep) text << tasks(order);
  text << "\ndat_train" << quoted(job.train) << (sweep ? " \"$@\"" : "") << "\n";
  return text.str();
}

}  // namespace dat
