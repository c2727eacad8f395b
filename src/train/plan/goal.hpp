#pragma once

#include "dat/attack.hpp"
#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "dat/loss.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// Objective of the attack on training images: the goal of the loss, with the start that --attack-start says. An attack
/// that climbs an objective of its own needs no logits of clean images.
[[nodiscard]] AttackGoal goal_of(const TrainOptions& options, const Loss& loss);

/// Returns whether the attack runs with batch statistics unless the user says otherwise. A loss that is taken against
/// the clean images needs samples that do not depend on each other.
[[nodiscard]] bool prefers_batch_statistics(const Attack& attack, const Loss& loss);

/// DAT_RESIDENT for training images: windows that are resized are made of what is stored.
[[nodiscard]] std::string training_images_resident(const TrainOptions& options);
/// Options of the loader of the training set, with so many threads.
[[nodiscard]] LoaderOptions loader_options(const TrainOptions& options, const Plan& plan, int threads = 1);

}  // namespace dat
