#pragma once

#include "dat/objective.hpp"

namespace dat {

/// The network as the attack of a training sees it.
class View : public Objective {
 public:
  /// Takes up the micro-batch that the buffers have, to be attacked from a random start towards the goal.
  virtual void prepare(const AttackGoal& goal) = 0;

 protected:
  /// Sets the objective, the start of attacks, and the data that is kept of the start.
  void take(const AttackGoal& goal) {
    loss = goal.loss;
    spread = goal.spread;
    start = nullptr;
    if (goal.kept != StartKept::images) first_images = nullptr;
    if (goal.kept != StartKept::logits) first_logits = nullptr;
  }
};

}  // namespace dat
