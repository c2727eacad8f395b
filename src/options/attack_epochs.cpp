#include <set>

#include "dat/options/attack.hpp"

namespace dat {

AttackSettings AttackSettings::in_epoch(std::int64_t epoch) const {
  AttackSettings now = *this;
  now.attack = attack.at(epoch);
  now.attack_steps = attack_steps.at(epoch);
  now.eps = eps.at(epoch);
  now.alpha = alpha.at(epoch);
  return now;
}

std::vector<int> AttackSettings::epochs_of_change() const {
  std::set<int> epochs{0};
  attack.add_changes(epochs);
  attack_steps.add_changes(epochs);
  eps.add_changes(epochs);
  alpha.add_changes(epochs);
  return {epochs.begin(), epochs.end()};
}

}  // namespace dat
