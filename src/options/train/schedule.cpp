// Length of the training, batches, and course of the learning rate: of the help's group Schedule.

#include <algorithm>
#include <cmath>

#include "dat/optimizer.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

void refuse_other_orders(const TrainOptions& o) {
  require(std::ranges::adjacent_find(o.milestones, std::greater_equal<>()) == o.milestones.end(), ExitCode::usage,
          "--milestones must increase, e.g. 75,90,95");
}

void refuse_a_rest(const TrainOptions& o) {
  if (o.total_batch == 0) return;
  for (const auto& part : o.total_batch.parts())
    require(o.micro_batch == 0 || part.value % o.micro_batch == 0, ExitCode::usage, "--total-batch ", part.value,
            " is no multiple of --micro-batch ", o.micro_batch, "; choose a divisor of it");
  require(o.micro_batch != 0 || o.generators >= 0, ExitCode::usage,
          "--generators auto has to know how large the micro-batches of --total-batch ", o.total_batch,
          " are; add --micro-batch N");
}

/// Parts of a run that have batches of their own are restarts; what would have to go over their borders is refused.
void refuse_over_parts(const TrainOptions& o) {
  const std::string name = o.batch.changes() ? "--batch" : o.total_batch.changes() ? "--total-batch" : "";
  if (name.empty()) return;
  const auto refuse = [&](bool given, const char* what) {
    require(!given, ExitCode::usage, name, " that changes by epoch does not go with ", what, "; leave one of them off");
  };
  refuse(o.max_steps != 0, "--max-steps, since steps are counted anew with each batch (--epochs counts on)");
  refuse(o.generators != 0, "--generators, whose orders are steps of one batch");
  refuse(o.byzantine, "--byzantine, whose ranks may leave");
  refuse(!o.attackers.empty(), "--attackers, which may leave");
  refuse(o.deterministic && o.micro_batch == 0,
         "--deterministic alone, which deals micro-batches to the ranks (add --micro-batch N)");
}

void require_whole_epochs(const TrainOptions& o) {
  constexpr double kRounding = 1e-9;
  const double sum = o.epochs + o.warmup_epochs, whole = std::ceil(sum);
  require(std::fabs(sum - std::round(sum)) < std::min(kRounding * whole, 0.01), ExitCode::usage, "--warmup-epochs ",
          number_text(o.warmup_epochs), " and --epochs ", number_text(o.epochs), " together are ", number_text(sum),
          " epochs, and a run has a whole number of them; choose --epochs ",
          number_text(std::max(0.0, whole - o.warmup_epochs)), ", say");
}

}  // namespace

void add_schedule(TrainTable& table) {
  using O = TrainOptions;
  table.group("Schedule");
  table.add("--schedule", &O::schedule, "learning rate; cyclic, one_cycle: PyTorch's", one_of(schedules().names()));
  table.add("--milestones", &O::milestones,
            "epochs after the warm-up at which --schedule " + alternatives(schedules().readers("milestones")) +
                " multiplies the rate by the decay",
            {.label = "N,N,...", .low = 0, .commas = true});
  table.rule(refuse_other_orders);
  table.setting("schedule", "decay", schedules(), &O::lr_decay, "factor at each milestone", kShare);
  table.add("--epochs", &O::epochs, "after the warm-up; auto: 100; built-in set: 3", kAutoEpochs).may_change();
  table.add("--warmup-epochs", &O::warmup_epochs,
            "passes until the rate is --lr; 7.5 and --epochs 7.5 together are 15; auto: 5, built-in set 1",
            kAutoEpochs);
  table.add("--batch", &O::batch,
            "images per rank and step, e.g. 512,128@12: 128 from epoch 12 on; auto: 128, built-in set 16",
            kAutoBatches);
  table.add("--total-batch", &O::total_batch,
            "instead of --batch: images of all ranks and step, an equal share for each; auto: --batch times the ranks",
            kAutoBatches);
  table.one_counts(
      "total-batch", "batch",
      "--total-batch {total-batch} and --batch {batch} both say how many images a step has; give one of them");
  table.rule(refuse_a_rest);
  table.rule(refuse_over_parts);
  table.add("--micro-batch", &O::micro_batch,
            "images per pass and of one batch norm; auto: a rank's batch, with --deterministic the whole --total-batch",
            kAutoCount);
}

void settle_schedule(TrainOptions& o) {
  if (!o.batch.changes() && o.batch == 0 && o.total_batch == 0) o.batch = o.data.empty() ? 16 : 128;
  const auto open = [](const ByEpoch<int>& batch) {
    return batch.changes() && batch.any([](int images) { return images == 0; });
  };
  require(!open(o.batch) && !open(o.total_batch), ExitCode::usage,
          "a batch that changes by epoch is a number in each of them, and not auto; give numbers, e.g. 512,128@12");
  if (o.epochs < 0) o.epochs = o.data.empty() ? 3 : 100;
  if (o.warmup_epochs < 0) o.warmup_epochs = o.data.empty() ? 1 : 5;
  require(o.epochs + o.warmup_epochs > 0, ExitCode::usage,
          "--epochs 0 and --warmup-epochs 0 leave nothing to train; raise one of them");
  require_whole_epochs(o);
  for (const auto& part : o.batch.parts())
    require(o.micro_batch == 0 || part.value % o.micro_batch == 0, ExitCode::usage, "--batch ", part.value,
            " is no multiple of --micro-batch ", o.micro_batch, "; choose a divisor of the batch");
  if (o.micro_batch == 0 && !o.batch.changes()) o.micro_batch = o.batch;
  // Whole micro-batches are dealt to the ranks then, as many as there are at any number of them.
  if (o.micro_batch == 0 && o.deterministic && !o.total_batch.changes()) o.micro_batch = o.total_batch;
}

}  // namespace dat
