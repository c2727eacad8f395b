#include "train/attackers/arithmetic.hpp"

namespace dat {

/// A little is enough: as far from the mean of the honest as honest ranks are (deviations_allowed), on one side in
/// every coordinate.
std::unique_ptr<Cheat> make_alie(const CheatOptions& options) {
  const double z = deviations_allowed(options.ranks, options.attackers);
  return sends(Cheat::Sees::all, [z](const CheatStep& step, std::int64_t i) {
    return double{step.mean[i]} - z * double{step.deviation[i]};
  });
}

}  // namespace dat
