#pragma once

#include <memory>
#include <vector>

#include "assess/evaluation.hpp"
#include "batch/attack_plan.hpp"
#include "dat/attack.hpp"
#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "dat/loss.hpp"

namespace dat {

/// The attack on training images. Error(usage).
[[nodiscard]] std::unique_ptr<Attack> attack_of(const TrainOptions& options, int classes);

/// The loss that is trained on; unlabelled: some training images have no label. Error(usage).
[[nodiscard]] std::unique_ptr<Loss> loss_of(const TrainOptions& options, bool unlabelled);

/// Method of a step by the options: what it computes of its examples, and evaluations of theirs: the members of the
/// families of attacks and losses, and what follows from them.
struct StepMethod {
  /// images: the training set. Error(usage): options that do not fit each other or the images.
  StepMethod(const TrainOptions& options, const Dataset& images);

  AttackPlan attacks;
  bool unlabelled;  ///< some training images have no label
  std::unique_ptr<Loss> loss;
  EvaluationAttacks evaluation;
  int attack_passes;  ///< passes of the attack in training mode, of a micro-batch; 0: it attacks the frozen network

  /// The passes of a micro-batch in training mode, in the order in which they enter the running statistics: the
  /// attack's, then the loss's.
  [[nodiscard]] std::vector<int> entering_statistics() const;
  /// Needs of all members.
  [[nodiscard]] Needs needs() const { return attacks.needs() | loss->needs() | evaluation.needs(); }
};

}  // namespace dat
