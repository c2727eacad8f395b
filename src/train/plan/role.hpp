#pragma once

#include <cstdint>

#include "dat/config.hpp"

namespace dat {

/// What a rank of a run is for. Ranks of one role form a group of their own: the group of the trainers takes the steps.
/// The first rank of the run is a trainer.
enum class Role : std::uint8_t {
  trainer  ///< has a replica of the network, makes its own examples, and updates the weights with the others
};

[[nodiscard]] inline Role role_of(int /*rank*/, const TrainOptions& /*options*/) { return Role::trainer; }

}  // namespace dat
