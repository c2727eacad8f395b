#include "train/plan/plan.hpp"

#include <algorithm>
#include <cmath>

#include "dat/dealing.hpp"
#include "dat/error.hpp"
#include "dat/optimizer.hpp"
#include "dat/report.hpp"

namespace dat {

namespace {

[[nodiscard]] std::int64_t total_batch_of(const TrainOptions& options, int ranks) {
  return options.total_batch != 0 ? std::int64_t{options.total_batch} : std::int64_t{options.batch} * ranks;
}

[[nodiscard]] EpochPlan epoch_of_run(const TrainOptions& options, const Mix& images, int ranks) {
  const int batch = batch_of(options, ranks);
  if (!sums_are_ordered(options)) return {images, ranks, batch, options.micro_batch != 0 ? options.micro_batch : batch};
  const int micro_batch = options.micro_batch != 0 ? options.micro_batch : options.batch.last();
  return {images, 1, batch, micro_batch};
}

/// "2 or 4": the numbers of ranks next to this one that can have equal shares of so many micro-batches.
[[nodiscard]] std::string ranks_that_share(std::int64_t micro_batches, int ranks) {
  std::int64_t fewer = ranks, more = ranks;
  while (micro_batches % fewer != 0) --fewer;
  while (more <= micro_batches && micro_batches % more != 0) ++more;
  return std::to_string(fewer) + (more <= micro_batches ? " or " + std::to_string(more) : "");
}

/// Error(usage): the micro-batches of a step are fewer than the ranks to which --deterministic deals them.
void require_one_for_each(const Plan& plan) {
  if (!plan.ordered || plan.micro_batches >= plan.ranks) return;
  const std::int64_t images = plan.images_of_a_step();
  std::int64_t size = images / plan.ranks;
  while (size != 0 && plan.total_batch % size != 0) --size;
  fail(ExitCode::usage, "--deterministic deals a step's ", images, " images to ", plan.ranks,
       " ranks in whole micro-batches, and --micro-batch ", plan.micro_batch,
       plan.micro_batch == plan.total_batch ? " (all of them)" : "", " makes ", plan.micro_batches,
       "; start no more than ", plan.micro_batches, " that train",
       size > 0 ? ", or choose --micro-batch " + std::to_string(size) : std::string());
}

/// Steps of whole epochs. Error(usage): more than can be counted.
[[nodiscard]] std::int64_t steps_of_epochs(std::int64_t epochs, std::int64_t steps_per_epoch) {
  std::int64_t steps{};
  require(!__builtin_mul_overflow(epochs, steps_per_epoch, &steps), ExitCode::usage, epochs, " epochs of ",
          steps_per_epoch, " steps are more steps than can be counted; choose fewer --epochs");
  return steps;
}

}  // namespace

int batch_of(const TrainOptions& options, int ranks) {
  if (sums_are_ordered(options)) {
    const std::int64_t all = total_batch_of(options, ranks);
    require(all <= std::numeric_limits<int>::max(), ExitCode::usage, ranks, " ranks of --batch ", options.batch,
            " are ", all, " images a step, more than --deterministic can deal; choose a smaller --batch");
    return static_cast<int>(all);
  }
  if (options.total_batch == 0) return options.batch;
  const int each = options.total_batch / ranks, micro_batch = options.micro_batch != 0 ? options.micro_batch : 1;
  const std::int64_t unit = std::int64_t{ranks} * micro_batch, units = options.total_batch / unit;
  require(each * ranks == options.total_batch, ExitCode::usage, "--total-batch ", options.total_batch,
          " is no multiple of ", ranks, " ranks, of which each has as many images; start ",
          ranks_that_share(options.total_batch / micro_batch, ranks), " that train, or choose ",
          units > 0 ? std::to_string(units * unit) + " or " : "", (units + 1) * unit,
          units > 0 ? ", or add --deterministic and --micro-batch N, which deal micro-batches to ranks" : "");
  require(each % micro_batch == 0, ExitCode::usage, "--total-batch ", options.total_batch, " is ", each,
          " images for each of ", ranks, " ranks, which is no multiple of --micro-batch ", micro_batch,
          "; choose a divisor of it");
  return each;
}

Plan::Plan(const TrainOptions& options, const Mix& training_images, int ranks_that_train)
    : Plan(options, training_images, ranks_that_train, epoch_of_run(options, training_images, ranks_that_train)) {}

Plan::Plan(const TrainOptions& options, const Mix& training_images, int ranks_that_train, const EpochPlan& epoch)
    : ranks(ranks_that_train),
      mix(training_images),
      images(training_images.samples()),
      ordered(sums_are_ordered(options)),
      total_batch(total_batch_of(options, ranks)),
      batch(ordered ? (epoch.micro_batches + ranks - 1) / ranks * epoch.micro_batch() : epoch.batch),
      micro_batches(epoch.micro_batches),
      micro_batch(epoch.micro_batch()),
      last_micro_batch(epoch.last_batch() / epoch.micro_batches),
      steps_per_epoch(epoch.steps()),
      epochs(std::llround(options.warmup_epochs + options.epochs)),
      warmup_epochs(options.warmup_epochs),
      steps(std::min(steps_of_epochs(epochs, steps_per_epoch),
                     options.max_steps != 0 ? options.max_steps : std::numeric_limits<std::int64_t>::max())),
      end(options.part_end < epochs ? std::min(steps, options.part_end * steps_per_epoch) : steps),
      warmup_steps(static_cast<std::int64_t>(std::ceil(steps_of(warmup_epochs, steps_per_epoch)))),
      draw_period(options.resample == "step"    ? 1
                  : options.resample == "epoch" ? steps_per_epoch
                                                : std::stoll(options.resample)),
      frozen_steps(!options.freezes()             ? 0
                   : options.frozen_epochs() == 0 ? std::numeric_limits<std::int64_t>::max()
                                                  : steps_of_epochs(options.frozen_epochs(), steps_per_epoch)),
      sizes(options.train_size) {
  images_of_an_epoch_ = ordered ? epoch.per_rank : epoch.per_rank * ranks;
  require_one_for_each(*this);
}

int Plan::micro_batches_of(int rank, int of_ranks) const {
  return ordered
             ? first_micro_batch(micro_batches, of_ranks, rank + 1) - first_micro_batch(micro_batches, of_ranks, rank)
             : micro_batches;
}

bool Plan::repeats_images() const {
  const std::int64_t of_a_step = images_of_a_step(), labelled = of_a_step / mix.group * mix.labelled_of_group;
  return labelled > mix.labelled || (mix.extra > 0 && of_a_step - labelled > mix.extra);
}

std::string Plan::mix_text() const {
  if (mix.extra == 0) return "";
  const std::int64_t labelled = std::int64_t{batch} / mix.group * mix.labelled_of_group;
  const std::int64_t extra = images_of_an_epoch_ / mix.group * (mix.group - mix.labelled_of_group);
  const std::int64_t epochs_of_extra = mix.extra / extra;
  return std::to_string(labelled) + " of " + std::to_string(batch) + " images from the " +
         std::to_string(mix.labelled) + " labelled ones, the others from " + std::to_string(mix.extra) +
         " extra ones, " + std::to_string(extra) + " in an epoch" +
         (epochs_of_extra > 1 ? ": once in " + std::to_string(epochs_of_extra) + " epochs" : "");
}

std::string Plan::text() const { return plan_text(steps, steps_per_epoch, epochs, warmup_epochs); }

}  // namespace dat
