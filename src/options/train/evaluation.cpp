#include <algorithm>
#include <set>

#include "dat/attack.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

void add_evaluation(TrainTable& table) {
  using O = TrainOptions;
  table.group("Evaluation");
  table.add("--eval", &O::eval, "attacks: pgd10,pgd20x5 (20 steps, 5 starts)", kAttackWords)
      .may_change(Restart::evaluation);
  table.add("--eval-eps", &O::eval_eps, "their radius; auto: --eps", kAutoRadius).may_change(Restart::evaluation);
  table
      .add("--eval-alpha", &O::eval_alpha, "their step size; auto: " + own_values(attacks(), "eval-alpha"), kAutoRadius)
      .may_change(Restart::evaluation);
  table.add("--eval-every", &O::eval_every, "epochs between evaluations; 0: only at the end", kCount).may_change();
  table
      .add("--patience", &O::patience,
           "end early, after N evaluations without a better robust accuracy on --holdout; 0: never", kCount)
      .works_with("holdout", {}, "--patience looks at images that are not trained on; add --holdout N")
      .may_change();
  table.not_together({"patience"}, {"eval-every", {"0"}},
                     "--patience counts evaluations; give --eval-every at least 1");
}

void settle_evaluation(TrainOptions& o) {
  name_steps(o.eval, AttackUse::training);
  if (o.eval_eps == 0) o.eval_eps = o.eps;
  const BallNorm norm = norm_from(o.norm);
  require_in_range("--eval-eps", norm, o.eval_eps);
  std::set<double> own;
  for (const std::string& word : o.eval) {
    const AttackWord known = read_attack_word(word);
    const double alpha = evaluation_alpha(known, norm, o.eval_eps, 0);
    const AttackOptions options{.norm = norm, .eps = o.eval_eps, .alpha = alpha, .steps = std::max(1, known.steps)};
    own.insert(attacks().at(known.name)(options)->alpha());
  }
  if (o.eval_alpha == 0 && own.size() == 1) o.eval_alpha = *own.begin();
  if (!own.contains(o.eval_alpha)) require_in_range("--eval-alpha", norm, o.eval_alpha);
}

}  // namespace dat
