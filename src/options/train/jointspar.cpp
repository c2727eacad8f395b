#include "dat/selector.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

void add_jointspar(TrainTable& table) {
  using O = TrainOptions;
  table.group("JointSpar");
  table.add("--selector", &O::selector,
            "which layers a step trains: all; drawn by the EXP3 bandit, as their gradient norms say (oracle), or all "
            "alike (uniform); or fewer and fewer, on a schedule (freezeout) or as their norms settle (autofreeze)",
            one_of(selectors().names()));
  table.setting("selector", "loss", selectors(), &O::bandit_loss, "what the bandit learns from",
                one_of(bandit_losses()));
  table.setting("selector", "rate", selectors(), &O::bandit_rate, "its learning rate; auto: the loss's own",
                kAutoRadius);
  table.setting("selector", "p_min", selectors(), &O::p_min, "lowest probability of a layer", kShare);
  table.setting("selector", "t0", selectors(), &O::freeze_t0,
                "share of the run after which the first layer freezes, as t_0", kShare);
  table.setting("selector", "schedule", selectors(), &O::freeze_schedule,
                "the power that t_0 and the layers' t are taken to", one_of({"linear", "squared", "cubic"}));
  table.setting("selector", "lr", selectors(), &O::freeze_lr,
                "a layer's learning rate is annealed until it freezes, from --lr over its share of the run (scaled) or "
                "from --lr; or left alone",
                one_of({"scaled", "unscaled", "constant"}));
  table.setting("selector", "percentile", selectors(), &O::freeze_percentile,
                "of the changes of norms, that which the first layer still trained has", {.low = 0, .high = 100});
  table.add("--budget", &O::budget, "mean number of active layers; auto: 40/54 of them", kAutoRadius)
      .counts_with("selector", selectors())
      .falls_back();
  table
      .add("--budget-unit", &O::budget_unit,
           "what a layer counts in the budget: 1, its bytes, or the seconds that it costs, in units of their mean",
           one_of({"layers", "bytes", "seconds"}))
      .counts_with("selector", selectors())
      .falls_back()
      .bound_to_ranks({"seconds"});
  table.add("--granularity", &O::granularity, "what counts as a layer", one_of({"tensor", "module", "block"}));
  table
      .add("--resample", &O::resample, "draw the active layers anew every step, every epoch, or every N steps",
           {.label = "step|epoch|N", .choices = {"step", "epoch"}, .number_too = true})
      .counts_with("selector", selectors(),
                   "--resample works with --selector any but all, not with {selector}; leave it off")
      .falls_back();
  table
      .add("--mask", &O::mask, "one draw of layers for all ranks, or one of each rank's own (JointSpar as published)",
           one_of({"shared", "per_worker"}))
      .bound_to_ranks();
  table.setting("mask", "transport", std::vector<std::string>{"per_worker"}, &O::mask_transport,
                "sum all layers, or those that any rank has drawn; or all gather what each has drawn",
                one_of({"dense", "union", "allgather"}));
  table.not_together(
      {"mask", {"per_worker"}}, {"selector", selectors().others("mask")},
      "--mask per_worker does not work with --selector {selector}, which draws no layers; leave one of them off");
}

void settle_jointspar(TrainOptions& o) {
  // The layers' learning rates go the way of 1/p, which is 1 there: they multiply the step.
  if (selectors().reads(o.selector, "selector:lr") && o.freeze_lr != "constant") o.importance = "outside";
  if (o.bandit_rate == 0) o.bandit_rate = default_bandit_rate(o.bandit_loss);
}

}  // namespace dat
