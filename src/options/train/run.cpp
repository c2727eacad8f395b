#include "options/machine.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

void refuse_other_orders_of_sums(const TrainOptions& o) {
  if (!o.deterministic) return;
  const std::string refused = ordering_refused(o);
  require(refused.empty(), ExitCode::usage, "--deterministic gives the same bits on any number of ranks, which ",
          refused, " does not allow; leave one of them off");
}

std::string not_recomputable(const std::string& option, const std::string& why) {
  return "--verify recomputes a micro-batch on another rank, which does not work with " + option + ": " + why +
         "; leave one of them off";
}

void refuse_rounding(const TrainOptions& o) {
  if (o.verify == 0) return;
  // Of --precision also "tf32", which is settled only later.
  for (const auto& [name, kept] : {std::pair("--attack-precision", o.attack_precision), {"--precision", o.precision}})
    require(kept.ends_with("f32") || o.deterministic, ExitCode::usage,
            not_recomputable(std::string(name) + " of 16 bits",
                             "without --deterministic their rounding turns too many signs"));
  require(o.attack_precision == "f32" || o.generators == 0, ExitCode::usage,
          not_recomputable("--attack-precision of 16 bits and --generators",
                           "ranks that train have no network of 16 bits that could attack once more"));
}

void add_setbacks(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--max-bad-steps", &O::max_bad_steps,
           "steps in a row that are skipped where images, loss or gradient are not finite", kCount)
      .may_change();
  table
      .add("--on-bad-steps", &O::on_bad_steps,
           "after --max-bad-steps: stop (code 7), or roll back to the last good checkpoint and lower the rate",
           one_of({"stop", "rollback"}))
      .may_change();
  const std::vector<std::string> back = {"rollback"};
  table
      .setting("on-bad-steps", "lr", back, &O::rollback_lr,
               "factor of the learning rate from a rollback on; it and times hold for --on-overfitting rollback, too",
               {.low = 0, .high = 1, .above = true, .below = true})
      .may_change();
  table
      .setting("on-bad-steps", "times", back, &O::max_rollbacks,
               "rollbacks allowed in a run; one more ends it with code 7", kPositive)
      .may_change();
  table
      .add("--on-overfitting", &O::on_overfitting,
           "catastrophic overfitting, seen on --holdout: warn, end with code 7, or go back to ckpt/best.h5",
           one_of({"warn", "stop", "rollback"}))
      .works_with("holdout", {}, "--on-overfitting looks at images that are not trained on; add --holdout N")
      .may_change();
}

void add_checks(TrainTable& table) {
  using O = TrainOptions;
  table.add("--check-every", &O::check_every, "steps between comparisons of the ranks' weights; 0: never", kCount)
      .may_change();
  table
      .add("--on-corruption", &O::on_corruption,
           "a rank whose state differs from that of most: end with code 8, or copy theirs; a gradient that cannot be "
           "recomputed: end, or leave the step out",
           one_of({"abort", "repair"}))
      .may_change();
  table
      .add("--verify", &O::verify,
           "every N steps another rank recomputes a micro-batch, attack included, and compares; 0: never", kCount)
      .may_change();
  const auto refuse = [&](const Choice& other, const std::string& option, const std::string& why) {
    table.not_together({"verify"}, other, not_recomputable(option, why));
  };
  refuse({"warm-start"}, "--warm-start", "what an attack starts from is kept by one rank, and has moved on");
  refuse({"stale-attack"}, "--stale-attack", "the attack has begun on weights that are gone");
  refuse({"mask", {"per_worker"}}, "--mask per_worker", "1/p is each rank's own");
  refuse({"bn-statistics", {"local"}}, "--bn-statistics local", "each rank attacks with its own statistics");
  refuse({"awp-gamma"}, "--awp-gamma", "the weights have been put back");
  table.rule(refuse_rounding);
}

}  // namespace

void add_run(TrainTable& table) {
  using O = TrainOptions;
  table.group("Run");
  table.add("--out", &O::out, "folder for results; none: runs/TIME or runs/JOB", kFolder).may_change();
  table.add("--max-steps", &O::max_steps, "end after N steps in all; 0: when the epochs are done", kCount).may_change();
  table.add("--checkpoint-every", &O::checkpoint_every, "steps between checkpoints; 0: every epoch", kCount)
      .may_change();
  table
      .add_switch("DAT_CHECKPOINT_ASYNC", "checkpoint-async", &O::checkpoint_async,
                  "write checkpoints while training goes on, which takes a second copy; auto: with a GPU",
                  one_of({"auto", "on", "off"}))
      .may_change();
  add_setbacks(table);
  table
      .add("--resume", &O::resume,
           "go on from the newest checkpoint in --out if there is one; never; or from this checkpoint or run",
           {.label = "auto|never|PATH"})
      .asked([](const O& o) { return o.resume != "auto" && o.resume != "never"; })
      .may_change();
  table.add("--initialize", &O::initialize,
            "begin with the weights of a checkpoint, a run, or a PyTorch state_dict saved as HDF5", kPath);
  table.not_together({"initialize"}, {"resume"},
                     "--initialize and --resume PATH both name a beginning; give one of them");
  table.add_switch("DAT_PROGRESS", "progress", &O::progress, "seconds between progress lines", kSomeSeconds)
      .may_change();
  table
      .add("--tensorboard", &O::tensorboard,
           "numbers, layers' probabilities and attacked images for TensorBoard, too: events.out.tfevents.* in --out")
      .may_change();
  table.group("Machine");
  add_machine(table);
  add_planning(table);
  table.rule(refuse_other_orders_of_sums);
  table.add_switch("DAT_VERBOSE", "verbose", &O::verbose, "name the library code chosen for each convolution; true: do")
      .may_change();
  table
      .add_switch("DAT_RESIDENT", "resident", &O::resident,
                  "keep the dataset in the GPU's memory; auto: if it fits into half of what is free",
                  one_of({"auto", "on", "off"}))
      .may_change();
  add_precision(table);
  table
      .add("--recompute", &O::recompute,
           "less memory for training passes: results of batch norms and activations are made again in the backward "
           "pass instead of being kept; the same bits, on a GPU with --deterministic",
           one_of({"none", "norms"}))
      .may_change();
  table
      .add_switch("DAT_GRAPHS", "graphs", &O::graphs,
                  "record attacks and training passes as CUDA graphs; off: call by call, to debug",
                  one_of({"on", "off"}))
      .may_change();
  table.group("Checks");
  add_checks(table);
}

}  // namespace dat
