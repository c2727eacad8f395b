#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "dat/checkpoint.hpp"
#include "train/trainer.hpp"

namespace dat {

/// A restart in the same process: puts a trainer of these ranks in place of the one that there is, on the images that
/// it had open, and has it go on from a state that rank 0 gives. Nothing of what is left stays in any part. The ranks
/// may be another group than the old trainer's, as long as its rank 0 stays. Error(device): no memory; else as
/// Trainer::restore. **Collective** over `ranks`.
void restart(std::unique_ptr<Trainer>& trainer, Communicator& ranks, const TrainOptions& options,
             const std::optional<Checkpoint>& state);

/// The first half of it: `restore` puts the state into the trainer, on rank 0; share_state() and start() come next.
void replace(std::unique_ptr<Trainer>& trainer, Communicator& ranks, const TrainOptions& options,
             const std::function<void(Trainer&)>& restore);

}  // namespace dat
