#include "train/plan/goal.hpp"

#include "dat/optimizer.hpp"

namespace dat {

AttackGoal goal_of(const TrainOptions& options, const Loss& loss) {
  if (options.attack == "none") return {};
  AttackGoal goal = loss.goal();
  if (!climbs_goal(options.attack)) goal = {.spread = goal.spread};
  if (options.attack_start != "auto") goal.spread = options.attack_start == "gaussian" ? kNearStart : 0;
  return goal;
}

bool prefers_batch_statistics(const Attack& attack, const Loss& loss) {
  return attack.prefers_batch_statistics() && !loss.goal().reference;
}

std::string training_images_resident(const TrainOptions& options) {
  return options.augment == "resized" ? "off" : options.resident;
}

LoaderOptions loader_options(const TrainOptions& options, const Plan& plan, int threads) {
  const bool own_warmup = schedules().at(options.schedule)({})->rises_by_itself();  // the schedule's, and not DAT's
  return {.batch = plan.ordered ? plan.micro_batch * plan.micro_batches : plan.batch,
          .micro_batch = plan.micro_batch,
          .dealt = plan.ordered,
          .mix = plan.mix,
          .augment = augment_of(options.augment),
          .sizes = plan.sizes,
          .everyone = options.warm_start != 0,
          .warmup_epochs = own_warmup ? 0 : static_cast<std::int64_t>(options.warmup_epochs),
          .seed = options.seed,
          .threads = threads,
          .prefetch = options.prefetch};
}

}  // namespace dat
