#pragma once

#include <cstdint>

#include "dat/config.hpp"
#include "dat/error.hpp"

namespace dat {

/// Purpose of a rank in a run. Ranks of one role form a group of their own: the group of the trainers takes the steps.
/// The first rank of the run is a trainer.
enum class Role : std::uint8_t {
  trainer,   ///< has a replica of the network, and updates the weights with the others
  generator  ///< attacks the images that trainers train on: the last ranks
};

/// Number of ranks that train, of a launch of `ranks` ranks: the first ones. Error(usage): none.
[[nodiscard]] inline int trainers_of(int ranks, const TrainOptions& options) {
  require(options.generators < ranks, ExitCode::usage, "--generators ", options.generators, " leaves no rank of ",
          ranks, " to train; start more ranks, or fewer generators");
  return ranks - options.generators;
}
/// Role of a rank of the launch, which has `ranks` ranks.
[[nodiscard]] inline Role role_of(int rank, int ranks, const TrainOptions& options) {
  return rank < trainers_of(ranks, options) ? Role::trainer : Role::generator;
}

}  // namespace dat
