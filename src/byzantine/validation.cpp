// A step of the protocol: the checks of the step before.

#include "byzantine/protocol.hpp"

namespace dat {

void Protocol::validate() {
  for (std::size_t k = 0; k < state_.pending.checks.size() && !interrupted(); ++k) judge(k);
}

/// A target's salts, which it has shown when its validator had said what it has found, fit what was found to what the
/// target has committed to; or all do the work once more.
void Protocol::judge(std::size_t k) {
  const PendingChecks& pending = state_.pending;
  const PendingCheck& check = pending.checks[k];
  const auto parts = static_cast<std::size_t>(pending.ranks);
  const Sha256Digest* const found = findings_.data() + k * (parts + 1);
  const Sha256Digest* const salts = opened_.data() + k * parts;
  const auto fits = [&](const Sha256Digest* roots, const Sha256Digest& findings) {
    for (std::size_t part = 0; part < parts; ++part)
      if (commitment(salts[part], roots[part]) != check.commitments[part]) return false;
    return findings == root_of_findings(check.numbers, check.claims);
  };
  if (fits(found, found[parts])) return;
  const int validator = rank_of(check.validator), target = rank_of(check.target);
  const Contribution& right = work_.redo(pending, check);
  const bool lied = !fits(right.roots.data(), root_of_findings(right.numbers, right.claims));
  accuse(validator, target, Rule::gradient, lied);
  if (!lied) accuse(target, validator, Rule::validation, true);
}

}  // namespace dat
