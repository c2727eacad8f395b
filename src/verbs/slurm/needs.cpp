// What a training needs of a job under Slurm.

#include "verbs/slurm/needs.hpp"

#include <fmt/format.h>

#include "record/history.hpp"
#include "run/begin/found.hpp"
#include "run/settle_generators.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/role.hpp"
#include "train/planned.hpp"
#include "train/trainer.hpp"

namespace dat {

namespace {

// Bytes of a process beside its buffers and images: the program, MPI, oneDNN's scratch memory; on a GPU also CUDA's
// context, and what cuDNN and cuBLAS load. Generous: Slurm ends a job that takes more than it has asked for.
constexpr double kProcessBytes = 1e9, kCudaProcessBytes = 6e9;

struct StepTime {
  double seconds = 0;  ///< 0: not known
  std::string source;
};

/// Mean over a run's steps, its evaluations and checkpoints included.
[[nodiscard]] StepTime step_time_of(const std::string& run) {
  const std::string path = run + "/metrics.jsonl";
  const std::vector<StepRecord> steps = read_history(run).steps;
  require(!steps.empty() && steps.back().step > 0 && steps.back().wall_time > 0, ExitCode::data, path,
          " ends in no whole training step");
  // Numbers of steps are counted anew where the batch changes, or the ranks.
  double seconds = steps.back().wall_time,
         made = static_cast<double>(steps.size() > 1 ? std::ssize(steps) : steps.back().step);
  if (steps.size() > 1 && steps.front().step > 1) {  // another run's time until its first step, on which it goes on
    seconds -= steps.front().wall_time;
    --made;
  }
  seconds /= made;
  require(seconds <= kLongestStep, ExitCode::data, path, ": steps of ", seconds, " s are longer than ", kLongestStep,
          " s; give --step-seconds");
  return {seconds, "the mean of the " + std::to_string(steps.size()) + " steps of " + in_one_line(run) +
                       ", its evaluations and checkpoints included"};
}

/// Host memory of a rank, and in words what it is made of. Of images it has the pixels, the page cache of plain files
/// included; of those that are decoded the batches that are read ahead.
struct Memory {
  double bytes = 0;
  std::string source;
};

[[nodiscard]] Memory memory_of(const Splits& splits, const TrainOptions& options, const Plan& plan, double buffers,
                               bool gpu) {
  const std::int64_t ahead = std::int64_t{plan.micro_batches_of(0)} * plan.micro_batch * (options.prefetch + 1);
  double images = 0;
  for (const Dataset* set : {splits.train.get(), splits.test.get(), splits.holdout.get()})
    if (set != nullptr)
      images += static_cast<double>(set->info().image_bytes()) *
                static_cast<double>(set->info().decoded ? ahead : set->size());
  const double process = gpu ? kCudaProcessBytes : kProcessBytes;
  return {images + buffers + process,
          fmt::format("{:.1f} MB of images, {:.1f} MB of buffers, {:.1f} MB for the process{}", images / 1e6,
                      buffers / 1e6, process / 1e6, gpu ? " with CUDA" : "")};
}

}  // namespace

void take_known_network(TrainOrder& order) {
  try {
    take_network(order);
  } catch (const Error&) {  // the file may come to be before the job begins
  }
}

JobNeeds needs_of(TrainOrder order, const SlurmOptions& job) {
  take_known_network(order);
  const bool gpu = job.gpus_per_node > 0;
  const int ranks = job.nodes * job.ranks_per_node;
  TrainOptions& whole = order.options;
  TrainOptions options = part_of(whole, epoch_of_largest_part(whole));
  static_cast<void>(settle_generators(options, ranks, job.ranks_per_node));
  whole.generators = options.generators;
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
  const Mix mix = mix_of(options, *splits.train, trainers);
  const Plan plan(options, mix, trainers);
  require_ranks(options, plan, ranks);
  buffers += warm_start_bytes(options, plan, *splits.train);
  const Memory memory = memory_of(splits, options, plan, buffers, gpu);
  // Rank 0 has what all ranks keep of every image twice while it reads a checkpoint.
  const double at_once = options.warm_start == 0 ? 0
                                                 : 2 * static_cast<double>(splits.train->info().image_bytes()) *
                                                       static_cast<double>(splits.train->size());
  JobNeeds needs{.node_bytes = memory.bytes * job.ranks_per_node + at_once,
                 .memory = memory.source + (at_once > 0 ? "; more on rank 0 while it reads a checkpoint" : ""),
                 .steps = steps_of_parts(whole, mix, trainers),
                 .length = text_of_parts(whole, mix, trainers)};
  StepTime step{job.step_seconds, "--step-seconds"};
  if (!job.like.empty()) step = step_time_of(job.like);
  if (step.seconds == 0 && !whole.calibration.empty())
    if (const auto all = forecast_of_run(whole, *splits.train, ranks, job.ranks_per_node))
      step = {*all / static_cast<double>(needs.steps),
              "a forecast by " + in_one_line(whole.calibration) + ", without evaluations and checkpoints"};
  needs.step_seconds = step.seconds;
  needs.source = step.source;
  needs.seconds = step.seconds * static_cast<double>(needs.steps);
  return needs;
}

}  // namespace dat
