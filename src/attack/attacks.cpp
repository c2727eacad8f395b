#include "attack/attacks.hpp"

#include <algorithm>
#include <limits>

#include "attack/l2.hpp"
#include "dat/error.hpp"
#include "margin.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"

namespace dat {

const Registry<std::unique_ptr<Attack>(const AttackOptions&)>& attacks() {
  const auto climbs = [](std::vector<Setting> more) {
    more.insert(more.end(), {{"attack-start"}, {"project"}});
    return more;
  };
  const char* const autoattack =
      "Croce and Hein, \"Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free "
      "attacks\", ICML 2020";
  static const Registry<std::unique_ptr<Attack>(const AttackOptions&)> all(
      "attack", {{"none", make_none},
                 {"pgd", make_pgd,
                  climbs({{"attack-steps"},
                          {"alpha", "2/255, in l2 2.5 eps/steps"},
                          {"eval-alpha", "eps/4, in l2 2.5 eps/steps"},
                          {"lambda", "1"},
                          {"attack-stop"},
                          {"stale-attack"},
                          {"staleness"}}),
                  "Madry et al., \"Towards Deep Learning Models Resistant to Adversarial Attacks\", ICLR 2018"},
                 {"fgsm", make_fgsm, climbs({{"alpha", "1.25 eps"}, {"eval-alpha", "1.25 eps"}}),
                  "Wong, Rice, Kolter, \"Fast is better than free\", ICLR 2020"},
                 {"smooth-pgd",
                  make_smooth_pgd,
                  {{"norm", "l2"}, {"attack-steps"}, {"alpha", "2 eps/steps"}, {"eval-alpha", "2 eps/steps"}},
                  "Salman et al., \"Provably Robust Deep Learning via Adversarially Trained Smoothed Classifiers\", "
                  "NeurIPS 2019"},
                 {"apgd-ce", make_apgd_ce, {}, autoattack},
                 {"apgd-dlr", make_apgd_dlr, {}, autoattack},
                 {"apgd-t", make_apgd_t, {}, autoattack},
                 {"fab", make_fab, {}, autoattack},
                 {"fab-t", make_fab_t, {}, autoattack},
                 {"square", make_square, {}, "Andriushchenko et al. (Square), ECCV 2020"}});
  return all;
}

double clean_weight_of(const std::string& attack) {
  return number_of(attacks().settings(attack), "lambda").value_or(0);
}

bool climbs_goal(const std::string& attack) { return attacks().at(attack)({.norm = BallNorm::l2})->climbs_goal(); }

AttackWord read_attack_word(const std::string& word) {
  constexpr int kSteps = 10, kMostSteps = 1'000'000, kMostRestarts = 1000;
  const std::vector<std::string> names = attacks().names();
  const auto is_name = [&](const std::string& text) { return std::ranges::find(names, text) != names.end(); };
  // NAME, its steps, 'x' and its restarts, '-' and its loss: "pgd50x10-margin"; but "fab-t" is a name.
  std::string plain = word;
  AttackWord attack{.name = {}, .steps = kSteps};
  const std::size_t dash = word.rfind('-');
  const bool has_loss = dash != std::string::npos && !is_name(word.substr(0, word.find_first_of("0123456789x", dash)));
  if (has_loss) {
    attack.loss = word.substr(dash + 1);
    plain.resize(dash);
    require(!attack.loss.empty(), ExitCode::usage, "'", word, "' names no loss after '-'; write '", plain, "'");
  }
  const auto number_after = [](const std::string& text, std::size_t at, int most, int& value) {
    return read_number(text.substr(at), value) && value >= 1 && value <= most;
  };
  const std::size_t times = plain.find_last_not_of("0123456789");
  if (times != std::string::npos && times > 0 && plain[times] == 'x' && !is_name(plain)) {
    require(number_after(plain, times + 1, kMostRestarts, attack.restarts), ExitCode::usage, "'", word,
            "' has no number of restarts from 1 to ", kMostRestarts, " after 'x'; write 'pgd20x5', for instance");
    plain.resize(times);
  }
  const std::size_t digits = plain.find_last_not_of("0123456789") + 1;
  attack.name = plain.substr(0, digits);
  const auto plan = attacks().at(attack.name)({.norm = BallNorm::l2, .steps = 2, .loss = attack.loss});
  require(!has_loss || plan->takes_loss(), ExitCode::usage, "'", word, "': ", attack.name,
          " climbs a loss of its own; write '", plain, "'");
  const bool takes_steps = plan->gradient_evaluations() == 2;
  if (!takes_steps) attack.steps = 0;
  require(plan->random() || attack.restarts == 1, ExitCode::usage, "'", word, "': ", attack.name,
          " does not start at random, and restarts change nothing; write '", plain, "'");
  if (digits == plain.size()) return attack;
  require(takes_steps, ExitCode::usage, "'", word, "': ", attack.name, " takes no number of steps; write '",
          attack.name, "'");
  require(number_after(plain, digits, kMostSteps, attack.steps), ExitCode::usage, "'", word,
          "' has no number of steps from 1 to ", kMostSteps, "; write 'pgd20', for instance");
  return attack;
}

double evaluation_alpha(const AttackWord& word, BallNorm norm, double eps, double wanted) {
  return wanted > 0 || word.steps == 0 || norm == BallNorm::l2 ? wanted : eps / 4;
}

AttackOptions evaluation_options(const AttackWord& word, BallNorm norm, double eps, double wanted, int classes) {
  return {.norm = norm,
          .eps = eps,
          .alpha = evaluation_alpha(word, norm, eps, wanted),
          .steps = std::max(1, word.steps),
          .loss = word.loss,
          .classes = classes};
}

void Objective::forward() {
  fail(ExitCode::usage,
       "this attack asks for logits, and needs samples that do not depend on each other; take --attack-bn eval");
}

void Objective::gradient_step(float alpha, float eps) {
  gradient();
  pgd_step(*this, alpha, eps);
}

void Objective::steps_until_fooled(int, int, float, float) {
  fail(ExitCode::usage, "the early stop of an attack needs samples that do not depend on each other");
}

namespace {

/// The largest wrong logit, or the target's, minus z_y, divided and cut off: kernels::MarginLoss.
void margin_loss(const Logits& l, float scale, bool targeted, kernels::Divisor divisor,
                 float cap = std::numeric_limits<float>::infinity()) {
  each(l.device, l.n,
       kernels::MarginLoss<float>{l.values, l.labels, targeted ? l.targets : nullptr, l.loss, l.correct, l.gradient,
                                  l.classes, scale, cap, divisor});
}

}  // namespace

void margin(const Logits& l, float scale) { margin_loss(l, scale, false, kernels::Divisor::one); }
void cw_margin(const Logits& l, float scale) { margin_loss(l, scale, false, kernels::Divisor::one, 50.0F); }
void class_difference(const Logits& l, float scale) { margin_loss(l, scale, true, kernels::Divisor::one); }
// Classes may be too few for the loss's terms, which are left out then; Attack::notice says so.
void dlr(const Logits& l, float scale) {
  margin_loss(l, scale, false, l.classes < 3 ? kernels::Divisor::one : kernels::Divisor::third);
}
void targeted_dlr(const Logits& l, float scale) {
  margin_loss(l, scale, true,
              l.classes < 3   ? kernels::Divisor::one
              : l.classes < 4 ? kernels::Divisor::third
                              : kernels::Divisor::third_and_fourth);
}

constexpr int kTargets = 9;

int targets_of(const AttackOptions& options) {
  require(options.classes >= 2, ExitCode::usage, "a network of one class cannot be attacked: nothing else is there");
  return std::min(kTargets, options.classes - 1);
}

std::string targets_notice(int classes) {
  if (classes > kTargets) return {};
  return "a network of " + std::to_string(classes) + " classes has no " + std::to_string(kTargets) +
         " wrong ones: apgd-t and fab-t aim at the " + std::to_string(classes - 1) + " that there are";
}

void Attack::advance(Objective&, int, int) const { fail(ExitCode::usage, "this attack does not iterate; take pgd"); }

void pgd_step(Objective& o, float alpha, float eps) {
  each(o.device, o.n * o.layout.elements(), kernels::PgdStep{{o.clean, o.eta, o.x_adv, alpha, eps}, o.dx});
}

void keep_first_images(const Objective& o) {
  if (o.first_images == nullptr) return;
  const std::int64_t n = o.n * o.layout.elements();
  each(o.device, kernels::groups(n), kernels::Add<float>{o.x_adv, nullptr, o.first_images, n});
}

void keep_first_logits(const Objective& o) {
  if (o.first_logits == nullptr) return;
  each(o.device, std::int64_t{o.n} * o.classes, kernels::Scale{o.logits, o.first_logits, 1.0F, false});
}

float step_radius(const AttackOptions& options) {
  return options.project ? static_cast<float>(options.eps) : std::numeric_limits<float>::infinity();
}

void start(Objective& o, BallNorm norm, double eps, bool in_box) {
  if (o.start != nullptr) {
    const std::int64_t n = o.n * o.layout.elements();
    each(o.device, kernels::groups(n), kernels::Add<float>{o.start, nullptr, o.eta, n});
    return each(o.device, kernels::groups(n), kernels::Add<float>{o.clean, o.eta, o.x_adv, n});
  }
  const bool near = o.spread > 0;
  if (!near && norm == BallNorm::l2) return start_in_l2(o, static_cast<float>(eps));
  each(o.device, o.n * o.layout.fours(),
       kernels::RandomStart{o.clean, o.eta, o.x_adv, o.sample_ids, o.layout, o.seed, o.purpose, o.time,
                            static_cast<float>(eps), o.spread, in_box && !near});
}

}  // namespace dat
