#include "dat/optimizer.hpp"

#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

/// An average that has begun goes on to the end.
void refuse_other_averages(const TrainOptions& o) {
  const auto& parts = o.average.parts();
  require(parts.size() == 1 || (parts.size() == 2 && parts[0].value == "none" && o.average != "none"), ExitCode::usage,
          "--average begins once, and one rule goes on to the end, as in none,ema@9; it is ", "not so here");
}

}  // namespace

void add_optimizer(TrainTable& table) {
  using O = TrainOptions;
  table.group("Optimizer");
  table.add("--optimizer", &O::optimizer, "update rule; lamb and lars as in DAT, lars_sgd: LARS as first published",
            one_of(optimizers().names()));
  const auto setting = [&](const char* key, auto field, const char* about, const Range& range = {}) {
    table.setting("optimizer", key, optimizers(), field, about, range);
  };
  setting("beta1", &O::beta1, "decay rate of the first moment", kDecay);
  setting("beta2", &O::beta2, "decay rate of the second moment", kDecay);
  setting("epsilon", &O::epsilon, "added to the root of the second moment", {.low = 0, .high = 1e-3, .above = true});
  setting("bias_correction", &O::bias_correction, "correct the moments for having begun at zero");
  setting("clamp", &O::clamp_high, "upper bound of the weight norm in the trust ratio", kAbove);
  setting("trust", &O::trust_coefficient, "factor of the layers' own learning rates", kAbove);
  setting("nesterov", &O::nesterov, "Nesterov's momentum");
  setting("peak_momentum", &O::peak_momentum,
          "momentum where the learning rate peaks, and --momentum where it is lowest: it goes against the rate; off: "
          "--momentum throughout",
          {.low = 0, .high = 1, .below = true, .automatic = -1, .word = "off"});
  table.add("--lr", &O::lr, "learning rate at the end of the warm-up", kAbove);
  table.add("--momentum", &O::momentum, "of " + listing(optimizers().readers("momentum")), kDecay);
  table.not_together({"optimizer:nesterov"}, {"momentum", {"0"}},
                     "--optimizer sgd:nesterov without --momentum is plain SGD; raise it, or leave nesterov off");
  table.add("--weight-decay", &O::weight_decay, "auto: " + own_values(optimizers(), "weight-decay"), kAutoWeight);
  table.add("--no-decay", &O::no_decay,
            "what weight decay leaves out; norms: scale and shift of batch norms, and biases (lars_sgd always does)",
            one_of({"none", "norms"}));
  table.not_together(
      {"no-decay"}, {"weight-decay", {"0"}},
      "--no-decay leaves something out of a weight decay that is 0; give --weight-decay, or leave it off");
  table.add("--clip-norm", &O::clip_norm, "largest norm of the whole gradient; longer ones are shortened; 0: any",
            kCount);
  std::vector<std::string> rules = average_rules();
  rules.insert(rules.begin(), "none");
  table.add("--average", &O::average,
            "also average the weights: ema, exponentially over the steps; swa, over the ends of epochs; none,ema@9: "
            "from epoch 9 on; evaluated and saved beside the raw ones",
            one_of(rules));
  table.rule(refuse_other_averages);
  table.setting("average", "decay", std::vector<std::string>{"ema"}, &O::average_decay,
                "most that an average keeps of itself in a step", kDecay);
  table.setting("average", "bn", average_rules(), &O::average_bn,
                "running statistics of the averaged weights: those of the raw ones; made anew on the training images; "
                "or averaged, too; auto: rebuild, with an --aggregator that withstands false ranks raw",
                one_of({"auto", "raw", "rebuild", "ema"}));
  table.not_together({"average:bn", {"ema"}}, {"bn-statistics", {"local"}},
                     "--average with bn=ema does not work with --bn-statistics local, where each rank has its own "
                     "statistics; take raw or rebuild");
}

void settle_optimizer(TrainOptions& o) {
  if (o.weight_decay < 0) o.weight_decay = number_of(optimizers().settings(o.optimizer), "weight-decay").value_or(0);
  // Statistics made anew are a mean over all ranks, which an aggregator does not look at.
  if (o.average_bn == "auto") o.average_bn = o.average == "none" || ranks_may_be_false(o) ? "raw" : "rebuild";
}

}  // namespace dat
