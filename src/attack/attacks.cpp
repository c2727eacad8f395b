#include "attack/attacks.hpp"

#include <charconv>

#include "dat/error.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"

namespace dat {

const Registry<std::unique_ptr<Attack>(const AttackOptions&)>& attacks() {
  static const Registry<std::unique_ptr<Attack>(const AttackOptions&)> all(
      "attack", {{"none", make_none}, {"fgsm", make_fgsm}, {"pgd", make_pgd}});
  return all;
}

AttackWord read_attack_word(const std::string& word, int steps) {
  const std::size_t digits = word.find_last_not_of("0123456789") + 1;
  AttackWord attack{word.substr(0, digits), steps};
  const auto& make = attacks().at(attack.name);
  const bool takes_steps = make({.steps = 2})->gradient_evaluations() == 2;
  if (!takes_steps) attack.steps = 0;
  if (digits == word.size()) return attack;
  require(takes_steps, ExitCode::usage, "'", word, "': ", attack.name, " takes no number of steps; write '",
          attack.name, "'");
  const auto [end, error] = std::from_chars(word.data() + digits, word.data() + word.size(), attack.steps);
  require(error == std::errc() && attack.steps > 0, ExitCode::usage, "'", word,
          "' has no number of steps; write 'pgd20', for instance");
  return attack;
}

double evaluation_alpha(const AttackWord& word, double eps, double wanted) {
  return wanted > 0 || word.steps == 0 ? wanted : eps / 4;
}

void Objective::forward() {
  fail(ExitCode::usage,
       "this attack asks for logits, and needs samples that do not depend on each other; take "
       "--attack-bn eval");
}

void Objective::gradient_step(float alpha, float eps) {
  gradient();
  pgd_step(*this, alpha, eps);
}

void Objective::steps_until_fooled(int, int, float, float) {
  fail(ExitCode::usage, "the early stop of an attack needs samples that do not depend on each other");
}

void Attack::begin(Objective&, int) const { fail(ExitCode::usage, "this attack does not iterate; take pgd"); }
void Attack::resume(Objective&, int) const { fail(ExitCode::usage, "this attack does not iterate; take pgd"); }
void Attack::step(Objective&) const { fail(ExitCode::usage, "this attack has no single steps; take pgd"); }

void pgd_step(Objective& o, float alpha, float eps) {
  each(o.device, o.n * o.layout.elements(), kernels::PgdStep{{o.clean, o.eta, o.x_adv, alpha, eps}, o.dx});
}

void start(Objective& o, double eps) {
  if (o.start != nullptr) {
    const std::int64_t n = o.n * o.layout.elements();
    each(o.device, kernels::groups(n), kernels::Add<float>{o.start, nullptr, o.eta, n});
    each(o.device, kernels::groups(n), kernels::Add<float>{o.clean, o.eta, o.x_adv, n});
    return;
  }
  each(o.device, o.n * ((o.layout.elements() + 3) / 4),
       kernels::RandomStart{o.clean, o.eta, o.x_adv, o.sample_ids, o.layout, o.seed, o.purpose, o.time,
                            static_cast<float>(eps)});
}

}  // namespace dat
