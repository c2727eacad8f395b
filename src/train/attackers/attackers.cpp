#include "train/attackers/attackers.hpp"

#include "dat/cheat.hpp"
#include "dat/error.hpp"

namespace dat {

std::vector<Attacker> attackers_of(const TrainOptions& options) {
  // One for all, or one for each: of as many, by the option's rules.
  const auto of = [](const auto& values, std::size_t k) { return values[values.size() == 1 ? 0 : k]; };
  std::vector<Attacker> all;
  for (std::size_t k = 0; k < options.attackers.size(); ++k)
    all.push_back({.rank = options.attackers[k],
                   .cheat = of(options.cheat, k),
                   .from = options.cheat_from.empty() ? 0 : of(options.cheat_from, k),
                   .every = options.cheat_every});
  return all;
}

void require_fitting(const std::vector<Attacker>& attackers, int ranks) {
  require(2 * std::ssize(attackers) < ranks, ExitCode::usage, "--attackers names ", attackers.size(), " of ", ranks,
          ranks == 1 ? " rank" : " ranks", "; more than half must be honest");
  for (const Attacker& one : attackers)
    require(one.rank < ranks, ExitCode::usage, "--attackers names rank ", one.rank, ", and the ranks are 0 to ",
            ranks - 1);
}

std::vector<Attacker> leaving(const std::vector<Attacker>& attackers, std::int64_t done) {
  std::vector<Attacker> found;
  for (const Attacker& one : attackers)
    if (done >= one.from && cheats().at(one.cheat)()->leaves()) found.push_back(one);
  return found;
}

}  // namespace dat
