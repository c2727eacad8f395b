#pragma once

#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "replica/replica.hpp"
#include "train/plan/plan.hpp"
#include "train/plan/role.hpp"
#include "train/plan/step_method.hpp"

namespace dat {

/// Ranks that share this rank's node, and its cores: those of the group, and generators.
[[nodiscard]] int ranks_on_node(Communicator& ranks, const TrainOptions& options);

/// The device of this rank, with which `on_node` ranks share their node's cores.
[[nodiscard]] BackendOptions backend_of(const MachineSettings& options, int on_node, const Communicator& ranks);

/// Threads that read a rank's images: as many as are asked for, else one, where a GPU computes the rank's share of
/// cores.
[[nodiscard]] int data_threads(const TrainOptions& options, const Backend& backend);
/// The sizes below that of the images that a part of a training has (train/plan/parts.hpp), each once. Error(usage):
/// one of --train-size is above it, or the last one is not it.
[[nodiscard]] std::vector<int> smaller_sizes(const TrainOptions& options, const DatasetInfo& images);

/// Reason why --attack-precision of 16 bits changes nothing in this training, for the user; empty: it does, or is f32.
[[nodiscard]] std::string precision_without_effect(const TrainOptions& options);

/// The network of a rank, on its device: of a trainer, or of a generator, which has no training programs.
[[nodiscard]] ReplicaOptions replica_of(const TrainOptions& options, const Plan& plan, const DatasetInfo& images,
                                        Communicator& ranks, const StepMethod& method, Role role);

}  // namespace dat
