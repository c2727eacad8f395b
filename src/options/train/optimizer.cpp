#include "dat/optimizer.hpp"

#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

/// Other programs call the radius of the attack epsilon, so this is told before --epsilon is refused with sgd.
void refuse_a_radius(const TrainOptions& o) {
  require(o.epsilon <= 1e-3, ExitCode::usage, "--epsilon ", number_text(o.epsilon),
          " is more than 1e-3: it is a part of lamb's step; the radius of the attack is --eps");
}

void refuse_empty_clamp(const TrainOptions& o) {
  require(o.clamp_low <= o.clamp_high, ExitCode::usage, "--clamp-low ", o.clamp_low, " is above --clamp-high ",
          o.clamp_high, "; swap or change them");
}

void add_rules_of_update(TrainTable& table) {
  using O = TrainOptions;
  table.rule(refuse_empty_clamp);
  table.rule(refuse_a_radius);
  table.add("--optimizer", &O::optimizer, "update rule; lamb and lars as in DAT, lars_sgd: LARS as first published",
            one_of(optimizers().names()));
  table.add("--lr", &O::lr, "learning rate at the end of the warm-up", kAbove);
  table.add("--momentum", &O::momentum, "of " + listing(optimizers().readers("momentum")), kDecay);
  table
      .add("--peak-momentum", &O::peak_momentum,
           "momentum where the learning rate peaks, and --momentum where it is lowest: it goes against the rate; off: "
           "--momentum throughout",
           {.low = 0, .high = 1, .below = true, .automatic = -1, .word = "off"})
      .counts_with("optimizer", optimizers());
  table.add("--nesterov", &O::nesterov, "Nesterov's momentum").counts_with("optimizer", optimizers());
  table.not_together({"nesterov"}, {"momentum", {"0"}},
                     "--nesterov without --momentum is plain SGD; raise it, or leave --nesterov off");
  table.add("--beta1", &O::beta1, "decay rate of the first moment", kDecay).counts_with("optimizer", optimizers());
  table.add("--beta2", &O::beta2, "decay rate of the second moment", kDecay).counts_with("optimizer", optimizers());
  table.add("--epsilon", &O::epsilon, "added to the root of the second moment; at most 1e-3", kAbove)
      .counts_with("optimizer", optimizers());
  table.add("--bias-correction", &O::bias_correction, "correct the moments for having begun at zero")
      .counts_with("optimizer", optimizers());
  table.add("--weight-decay", &O::weight_decay, "auto: " + own_values(optimizers(), "weight-decay"), kAutoWeight);
  table.add("--no-decay", &O::no_decay,
            "what weight decay leaves out; norms: scale and shift of batch norms, and biases (lars_sgd always does)",
            one_of({"none", "norms"}));
  table.not_together(
      {"no-decay"}, {"weight-decay", {"0"}},
      "--no-decay leaves something out of a weight decay that is 0; give --weight-decay, or leave it off");
  table.add("--trust-coefficient", &O::trust_coefficient, "factor of the layers' own learning rates", kAbove)
      .counts_with("optimizer", optimizers());
  table.add("--clamp-low", &O::clamp_low,
            "lower bound of the weight norm in the trust ratio of " + listing(optimizers().readers("clamp-low")),
            kCount);
  table.add("--clamp-high", &O::clamp_high, "upper bound of it", kAbove);
  table.add("--clip-norm", &O::clip_norm, "largest norm of the whole gradient; longer ones are shortened; 0: any",
            kCount);
  table.add("--importance", &O::importance, "JointSpar's 1/p multiplies the gradient (inside) or the step (outside)",
            one_of({"inside", "outside"}));
}

void add_average(TrainTable& table) {
  using O = TrainOptions;
  std::vector<std::string> rules = average_rules();
  rules.insert(rules.begin(), "none");
  table.add("--average", &O::average,
            "also average the weights: ema, exponentially over the steps; swa, over the ends of epochs; evaluated and "
            "saved beside the raw ones",
            one_of(rules));
  const std::string both = "--average-decay, --average-from and --average-bn work with --average " +
                           alternatives(average_rules()) + "; add that, or leave them off";
  table.add("--average-decay", &O::average_decay, "most that an average keeps of itself in a step", kDecay)
      .works_with("average", average_rules(), both)
      .works_with("average", {"ema"});
  table.add("--average-from", &O::average_from, "epochs, warm-up included, after which averaging begins", kCount)
      .works_with("average", average_rules(), both);
  table
      .add("--average-bn", &O::average_bn,
           "running statistics of the averaged weights: those of the raw ones; made anew on the training images; or "
           "averaged, too; auto: rebuild, with an --aggregator that withstands false ranks raw",
           one_of({"auto", "raw", "rebuild", "ema"}))
      .asked([](const O& o) { return o.average_bn != "auto" && o.average_bn != "raw"; })
      .works_with("average", average_rules(), both);
  table.not_together({"average-bn", {"ema"}}, {"bn-statistics", {"local"}},
                     "--average-bn ema does not work with --bn-statistics local, where each rank has its own "
                     "statistics; take raw or rebuild");
}

}  // namespace

void add_optimizer(TrainTable& table) {
  table.group("Optimizer");
  add_rules_of_update(table);
  add_average(table);
}

void settle_optimizer(TrainOptions& o) {
  if (o.weight_decay < 0) o.weight_decay = number_of(optimizers().settings(o.optimizer), "weight-decay").value_or(0);
  // Statistics made anew are a mean over all ranks, which an aggregator does not look at.
  if (o.average_bn == "auto") o.average_bn = o.average == "none" || ranks_may_be_false(o) ? "raw" : "rebuild";
}

}  // namespace dat
