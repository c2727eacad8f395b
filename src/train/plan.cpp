#include "train/plan.hpp"

#include <algorithm>

#include "dat/report.hpp"

namespace dat {

Plan::Plan(const TrainOptions& options, const Mix& training_images, int ranks_that_train)
    : Plan(options, training_images, ranks_that_train,
           EpochPlan(training_images, ranks_that_train, options.batch, options.micro_batch)) {}

Plan::Plan(const TrainOptions& options, const Mix& training_images, int ranks_that_train, const EpochPlan& epoch)
    : ranks(ranks_that_train),
      mix(training_images),
      images(training_images.samples()),
      images_of_a_rank(epoch.per_rank),
      batch(epoch.batch),
      micro_batches(epoch.micro_batches),
      micro_batch(epoch.micro_batch()),
      last_micro_batch(epoch.last_batch() / epoch.micro_batches),
      steps_per_epoch(epoch.steps()),
      epochs(options.warmup_epochs + options.epochs),
      warmup_epochs(options.warmup_epochs),
      warmup_steps(warmup_epochs * steps_per_epoch),
      steps(epochs * steps_per_epoch),
      draw_period(options.resample == "step"    ? 1
                  : options.resample == "epoch" ? steps_per_epoch
                                                : std::stoll(options.resample)) {
  if (options.max_steps > 0) steps = std::min(steps, options.max_steps);
}

std::string Plan::mix_text() const {
  if (mix.extra == 0) return "";
  const std::int64_t labelled = std::int64_t{batch} / mix.group * mix.labelled_of_group;
  const std::int64_t extra = images_of_a_rank * ranks / mix.group * (mix.group - mix.labelled_of_group);
  const std::int64_t epochs_of_extra = mix.extra / extra;
  return std::to_string(labelled) + " of " + std::to_string(batch) + " images from the " +
         std::to_string(mix.labelled) + " labelled ones, the others from " + std::to_string(mix.extra) +
         " extra ones, " + std::to_string(extra) + " in an epoch" +
         (epochs_of_extra > 1 ? ": once in " + std::to_string(epochs_of_extra) + " epochs" : "");
}

std::string Plan::text() const { return plan_text(steps, steps_per_epoch, epochs, warmup_epochs); }

}  // namespace dat
