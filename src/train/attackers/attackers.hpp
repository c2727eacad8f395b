#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/cheat.hpp"
#include "dat/config.hpp"

namespace dat {

/// A rank that is made to cheat.
struct Cheater : CheatWord {
  int rank = 0;         ///< rank in the launch
  bool leaves = false;  ///< the cheat is to leave

  /// Steps by which what it brings is late, with the cheat's own number where none is given.
  [[nodiscard]] int own_delay() const { return delay > 0 ? delay : CheatOptions{}.delay; }
  /// Returns whether it cheats in the step after `done` steps.
  [[nodiscard]] bool cheats_after(std::int64_t done) const { return done >= from && (done - from) % every == 0; }
};

/// The attackers of a run, in the order of the option.
[[nodiscard]] std::vector<Cheater> attackers_of(const TrainOptions& options);
/// Error(usage): one of them is none of so many ranks of the launch, or they are half of the ranks.
void require_fitting(const std::vector<Cheater>& attackers, int ranks);

/// Cheaters whose cheat is to leave, and which do so after `done` steps at the latest.
[[nodiscard]] std::vector<Cheater> leaving(const std::vector<Cheater>& attackers, std::int64_t done);

/// Cheating ranks and their cheats, for people: "ranks 1, 4: sign_flip from step 101 on; rank 5: alie, every 10 steps".
/// Empty: nobody.
[[nodiscard]] std::string text_of(const std::vector<Cheater>& attackers);

}  // namespace dat
