#pragma once

#include <memory>
#include <vector>

#include "assess/evaluation.hpp"
#include "dat/attack.hpp"
#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "dat/loss.hpp"

namespace dat {

/// The attack on training images. Error(usage).
[[nodiscard]] std::unique_ptr<Attack> attack_of(const TrainOptions& options, int classes);

/// The loss that is trained on; unlabelled: some training images have no label. Error(usage).
[[nodiscard]] std::unique_ptr<Loss> loss_of(const TrainOptions& options, bool unlabelled);

/// The attack on training images in the epochs from one on.
struct EpochAttack {
  int from = 0;
  double eps = 0;  ///< 0: images are not perturbed
  std::unique_ptr<Attack> attack;
  AttackGoal goal;
};

/// What the options make a step compute of its examples, and evaluations of theirs: the members of the families of
/// attacks and losses, and what follows from who they are.
struct Method {
  /// images: the training set. Error(usage): options that do not fit each other or the images.
  Method(const TrainOptions& options, const Dataset& images);

  std::vector<EpochAttack> attacks;  ///< at least one, in the order of their epochs; the first is of epoch 0
  bool unlabelled;                   ///< some training images have no label
  std::unique_ptr<Loss> loss;
  EvaluationAttacks evaluation;
  int attack_passes;  ///< of the attack, in training mode, of a micro-batch; 0: it attacks the frozen network

  /// Of the last epochs; allocates nothing.
  [[nodiscard]] const EpochAttack& last() const { return attacks.back(); }
  [[nodiscard]] const EpochAttack& in_epoch(std::int64_t epoch) const;
  /// Whether an attack is taken against the logits of clean images.
  [[nodiscard]] bool attacks_reference() const;
  /// The most gradients that an attack computes for an image.
  [[nodiscard]] int most_gradients() const;

  /// The passes of a micro-batch in training mode, in the order in which they enter the running statistics: the
  /// attack's, then the loss's.
  [[nodiscard]] std::vector<int> entering_statistics() const;
  /// The most that an attack needs (Attack::scratch_images).
  [[nodiscard]] int scratch_images() const;
};

}  // namespace dat
