#pragma once

#include <cstdint>
#include <string>

#include "verbs/slurm/slurm.hpp"

namespace dat {

/// What a training needs of its job, with words for the head of the script.
struct JobNeeds {
  double node_bytes = 0;    ///< host memory of a node
  std::string memory;       ///< what that of a rank is made of
  std::int64_t steps = 0;   ///< of the whole training
  std::string length;       ///< its length in words
  double step_seconds = 0;  ///< 0: not known
  std::string source{};     ///< where the seconds of a step come from
  double seconds = 0;       ///< of all steps; 0: not known
};

/// Takes the network of given weights, as take_network() does, where their file is there already: it may come to be
/// before the job begins.
void take_known_network(TrainOrder& order);
/// Plans the training for the ranks of the job. Error: it cannot begin there.
[[nodiscard]] JobNeeds needs_of(TrainOrder order, const SlurmOptions& job);

}  // namespace dat
