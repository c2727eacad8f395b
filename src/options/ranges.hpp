#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dat/attack.hpp"
#include "dat/norm.hpp"
#include "dat/options/schedule.hpp"
#include "options/attack_words.hpp"
#include "options/values/field.hpp"

namespace dat {

// Ranges of several options.

inline const Range kPath{.label = "PATH"};
inline const Range kPaths{.label = "PATH..."};
inline const Range kFolder{.label = "DIR"};
inline const Range kCount{.low = 0};     // 0 has a meaning of its own
inline const Range kPositive{.low = 1};  // whole numbers
inline const Range kAbove{.low = 0, .above = true};
inline const Range kShare{.low = 0, .high = 1, .above = true};
inline const Range kRadius{.low = 0, .above = true};  // and of L-infinity at most 1
inline const Range kAutoRadius{.low = 0, .above = true, .automatic = 0};
inline const Range kDecay{.low = 0, .high = 1, .below = true};  // decay of an exponential average
inline const Range kAutoWeight{.low = 0, .automatic = -1};
inline const Range kAttackWords{.label = "ATTACK,...", .commas = true, .known = single_attacks};
inline const Range kSequenceWords{.label = "ATTACK,...", .commas = true, .known = attacks_and_sequences};
inline const Range kAutoCount{.low = 1, .automatic = 0};
inline const Range kAutoBatches{.label = "N,N@EPOCH,...", .low = 1, .automatic = 0};
inline const Range kAutoThreads{.low = 1, .high = 4096, .automatic = 0};
inline const Range kAutoEpochs{.low = 0, .high = kMostEpochs, .automatic = -1};
inline const Range kBatch{.low = 1, .high = 1 << 24};  // size of a batch, which takes as much memory
inline const Range kAutoWidth{.low = 1, .high = 4096, .automatic = 0};
inline const Range kSteps{.low = 1, .high = 1'000'000};  // steps of an attack
inline const Range kSamples{.low = 1, .high = 1e12};
inline const Range kAutoBucket{.low = 1, .high = 0x1p40, .automatic = 0};
inline const Range kManyImages{.low = 1, .high = 1e9};
inline const Range kSeconds{.low = 0, .high = 1e9};  // some 30 years
inline const Range kSomeSeconds{.low = 0, .high = 1e9, .above = true};

[[nodiscard]] inline Range one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
[[nodiscard]] inline Range one_attack() { return {.choices = attacks().names(), .advice = attack_advice}; }
/// "auto", and the names.
[[nodiscard]] inline Range auto_or(std::vector<std::string> names) {
  names.insert(names.begin(), "auto");
  return one_of(std::move(names));
}

}  // namespace dat
