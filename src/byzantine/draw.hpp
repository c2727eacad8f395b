#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "byzantine/digest.hpp"

namespace dat {

/// A rank that does another one's work of the step before once more, in place of its own. Ranks of the group.
struct Check {
  int validator = 0, target = 0;
};

/// Checks of the next step, drawn by the randomness of this one: validators are drawn from all ranks; for each of them,
/// one after the other, a target from those that have brought a gradient, are nobody's target yet and are not the
/// validator itself. Each of these draws is uniform. Where no target is left, a validator does its own work.
/// contributed: [ranks]. validators: at most so many.
[[nodiscard]] std::vector<Check> draw_checks(const Sha256Digest& randomness, std::span<const char> contributed,
                                             int validators);

/// The key of the random direction by which part number `part` is checked.
[[nodiscard]] std::uint64_t direction_key(const Sha256Digest& randomness, int part);

}  // namespace dat
