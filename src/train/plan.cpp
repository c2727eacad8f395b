#include "train/plan.hpp"

#include <algorithm>

#include "dat/report.hpp"

namespace dat {

Plan::Plan(const TrainOptions& options, std::int64_t training_images, int ranks_that_train)
    : Plan(options, training_images, ranks_that_train,
           EpochPlan(training_images, ranks_that_train, options.batch, options.micro_batch)) {}

Plan::Plan(const TrainOptions& options, std::int64_t training_images, int ranks_that_train, const EpochPlan& epoch)
    : ranks(ranks_that_train),
      images(training_images),
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

std::string Plan::text() const { return plan_text(steps, steps_per_epoch, epochs, warmup_epochs); }

}  // namespace dat
