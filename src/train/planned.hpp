#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "train/trainer.hpp"

namespace dat {

/// Options by which one process makes a trainer as each of so many ranks that train has, for what it sends and needs.
[[nodiscard]] TrainOptions as_one(const TrainOptions& options, int ranks);

/// Bytes that each of so many ranks that train allocates for its backend, by purpose: those of `trainer`, which is the
/// only one here, and what messages and the protocol that bans take more among several.
[[nodiscard]] std::map<std::string, std::size_t> memory_of(Trainer& trainer, const TrainOptions& options, int ranks);

/// Precision of training passes, in words: the type, and the loss scale.
[[nodiscard]] std::string precision_text(const TrainOptions& options);

/// A line about what --freeze leaves to train; empty: everything. The weight gradients are those of convolutions, of
/// all passes and micro-batches of a rank's step, in the mean over draws with the first probabilities.
[[nodiscard]] std::string frozen_text(const Trainer& trainer, const TrainOptions& options, const Plan& plan);

/// Bytes of host memory in which a rank keeps its perturbations (--warm-start).
[[nodiscard]] double warm_start_bytes(const TrainOptions& options, const Plan& plan, const Dataset& images);

/// Error(usage): what `train` refuses on so many ranks, generators included.
void require_ranks(const TrainOptions& options, const Plan& plan, int launched);

}  // namespace dat
