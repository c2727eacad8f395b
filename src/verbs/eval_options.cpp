// The verb eval: its options and what reads them.

#include <algorithm>
#include <filesystem>

#include "dat/attack_sequence.hpp"
#include "dat/error.hpp"
#include "options/machine.hpp"
#include "verbs/eval.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_images(TableOf<EvalOptions>& table) {
  using O = EvalOptions;
  table.group("Data");
  table.add("RUN,--checkpoint", &O::checkpoint, "the folder of a run: its newest checkpoint; or a checkpoint", kPath);
  table.add("--data", &O::data, "files made by 'dat_hpc data'; none: those of the training", kPaths);
  table.add("--split", &O::split, "which images; holdout: what the training kept aside",
            one_of({"test", "train", "holdout"}));
  table.add("--limit", &O::limit, "the first N images only; 0: all", kCount);
  table.add("--weights", &O::weights, "of a checkpoint with averaged ones; auto: those, where it has any",
            one_of({"auto", "raw", "average"}));
}

void add_attacks(TableOf<EvalOptions>& table) {
  using O = EvalOptions;
  table.group("Attack");
  table.add("--eval,--attack", &O::eval,
            "attacks, e.g. pgd10,pgd20 (PGD of 10 and of 20 steps), each on all images; and one sequence, each of "
            "whose attacks takes what those before it left right: aa-standard, aa-plus or aa-rand (AutoAttack), "
            "aa-quick (its first two attacks), or words like pgd20+fgsm",
            kAttackWords);
  table.add("--norm,--eval-norm", &O::norm,
            "size of a perturbation: its largest entry (linf), or the root of its sum of squares (l2); auto: that of "
            "the training",
            auto_or(norm_names()));
  table.add("--eps,--eval-eps", &O::eps,
            "radius of the ball of perturbations; pixels are in [0, 1]; auto: that of the training", kAutoRadius);
  table.add("--alpha,--eval-alpha", &O::alpha, "step size; auto: pgd eps/4, in l2 2.5 eps/steps; fgsm 1.25 eps",
            kAutoRadius);
  table.add("--attack-steps,--eval-attack-steps", &O::attack_steps, "steps of a pgd that names none", kPositive);
  table.add("--restarts,--eval-restarts", &O::restarts, "random starts; the worst counts for each image", kPositive);
}

const TableOf<EvalOptions>& eval_table() {
  static const auto all = [] {
    using O = EvalOptions;
    TableOf<O> table;
    add_images(table);
    add_attacks(table);
    table.group("Run");
    table.add("--out", &O::out, "FILE.json, or a folder for eval.json: results by class and image; none: not written",
              kPath);
    table.add("--save-adversarial", &O::save_adversarial,
              "the images that a sequence has attacked, too: adversarial.h5 in the folder --out");
    table.add("--batch", &O::batch, "images per rank and step", kPositive);
    table.add("--progress", &O::progress, "seconds between progress lines", kAbove);
    add_machine(table);
    return table;
  }();
  return all;
}

/// "eval --eval pgd20 runs/a", "eval --data a.h5 runs/a": options that take several words have taken the run, too.
void take_run_back(EvalOptions& o) {
  const auto take = [&](std::vector<std::string>& words) {
    o.checkpoint = words.back();
    words.pop_back();
  };
  std::error_code unreadable;
  if (o.checkpoint.empty() && o.eval.size() > 1 && !may_be_attack(o.eval.back())) take(o.eval);
  if (o.checkpoint.empty() && o.data.size() > 1 && std::filesystem::is_directory(o.data.back(), unreadable))
    take(o.data);
}

Bound bound_to(const EvalOptions& options) { return {eval_table(), const_cast<EvalOptions&>(options)}; }

}  // namespace

std::string toml_of(const EvalOptions& options) { return bound_to(options).toml(); }

std::vector<std::pair<std::string, std::string>> settings_of(const EvalOptions& options) {
  return bound_to(options).settings();
}

std::optional<EvalOptions> parse_eval(CommandLine& line) {
  EvalOptions o;
  Bound bound(eval_table(), o);
  line.describe("Clean and robust accuracy of a trained network.");
  line.add_configurable(bound, false);
  if (!line.read()) return {};
  take_run_back(o);
  require_attacks(o.eval);
  name_steps(o.eval, o.attack_steps, AttackUse::evaluation);
  bound.check(true);
  const bool runs = line.finish();
  require(!runs || !o.checkpoint.empty(), ExitCode::usage, "eval needs a network, a run or a checkpoint: dat_hpc eval ",
          "RUN", o.data.size() > 1 ? "; give it in front of --data, which takes all words behind it" : "");
  require(!o.save_adversarial || std::any_of(o.eval.begin(), o.eval.end(), names_sequence), ExitCode::usage,
          "--save-adversarial is for a sequence of attacks; add aa-quick to --eval, for instance");
  require(!o.save_adversarial || (!o.out.empty() && !o.out.ends_with(".json")), ExitCode::usage,
          "--save-adversarial needs a folder to write to; give --out FOLDER");
  if (!runs) return {};
  return o;
}

Verb eval_verb() {
  return make_verb<EvalOptions>("eval", "clean and robust accuracy of a run or checkpoint", parse_eval, run_evaluation);
}

}  // namespace dat
