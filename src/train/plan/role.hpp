#pragma once

#include <cstdint>

#include "dat/config.hpp"

namespace dat {

/// What a rank of a run is for. Ranks of one role form a group of their own: the group of the trainers takes the steps.
/// The first rank of the run is a trainer.
enum class Role : std::uint8_t {
  trainer,   ///< has a replica of the network, and updates the weights with the others
  generator  ///< attacks the images that trainers train on: the last ranks
};

/// Of a rank of the launch, which has so many ranks.
[[nodiscard]] inline Role role_of(int rank, int ranks, const TrainOptions& options) {
  return rank < ranks - options.generators ? Role::trainer : Role::generator;
}

}  // namespace dat
