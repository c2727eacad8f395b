#pragma once

#include "dat/objective.hpp"

namespace dat {

/// How the attack of a training sees the network.
class View : public Objective {
 public:
  /// Takes up the micro-batch that the buffers have, to be attacked from a random start towards the goal.
  virtual void prepare(const AttackGoal& goal) = 0;

 protected:
  /// What is climbed, where attacks start, and where they leave what is wanted of their beginning.
  void take(const AttackGoal& goal) {
    loss = goal.loss;
    spread = goal.spread;
    start = nullptr;
    if (goal.kept != StartKept::images) first_images = nullptr;
    if (goal.kept != StartKept::logits) first_logits = nullptr;
  }
};

}  // namespace dat
