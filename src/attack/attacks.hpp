#pragma once

#include "dat/attack.hpp"

namespace dat {

[[nodiscard]] std::unique_ptr<Attack> make_none(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_fgsm(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_pgd(const AttackOptions&);

/// eta = objective.start, or U(-eps, eps) where there is none; x_adv = x + eta.
void start(Objective& objective, double eps);
/// An iteration of PGD with the gradient that is in objective.dx.
void pgd_step(Objective& objective, float alpha, float eps);

}  // namespace dat
