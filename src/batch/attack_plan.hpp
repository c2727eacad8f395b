#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "dat/attack.hpp"

namespace dat {

/// The attack on training images in the epochs from one on.
struct EpochAttack {
  int from = 0;
  double eps = 0;  ///< 0: images are not perturbed
  std::unique_ptr<Attack> attack;
  AttackGoal goal;
};

/// The attacks of a training, in the order of their epochs; the first is of epoch 0.
class AttackPlan {
 public:
  EpochAttack& add() { return parts_.emplace_back(); }

  [[nodiscard]] const std::vector<EpochAttack>& all() const { return parts_; }
  [[nodiscard]] const EpochAttack& last() const { return parts_.back(); }
  /// Allocates nothing.
  [[nodiscard]] const EpochAttack& in_epoch(std::int64_t epoch) const {
    const auto later =
        std::find_if(parts_.begin() + 1, parts_.end(), [&](const EpochAttack& one) { return one.from > epoch; });
    return *(later - 1);
  }
  /// The most gradients that an attack computes for an image.
  [[nodiscard]] int most_gradients() const {
    int most = 0;
    for (const EpochAttack& one : parts_) most = std::max(most, one.attack->gradients_of_run());
    return most;
  }
  [[nodiscard]] Needs needs() const {
    Needs all;
    for (const EpochAttack& one : parts_) all = all | one.attack->needs() | one.goal.needs();
    return all;
  }

 private:
  std::vector<EpochAttack> parts_;
};

}  // namespace dat
