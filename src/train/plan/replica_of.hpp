#pragma once

#include "dat/communicator.hpp"
#include "replica/replica.hpp"
#include "train/plan/method.hpp"
#include "train/plan/plan.hpp"
#include "train/plan/role.hpp"

namespace dat {

/// Ranks that share this rank's node, and its cores: those of the group, and generators.
[[nodiscard]] int ranks_on_node(Communicator& ranks, const TrainOptions& options);

/// The network of a rank, on its device: of a trainer, or of a generator, which has no training programs.
[[nodiscard]] ReplicaOptions replica_of(const TrainOptions& options, const Plan& plan, const DatasetInfo& images,
                                        Communicator& ranks, const Method& method, Role role);

}  // namespace dat
