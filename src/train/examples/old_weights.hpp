#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/attack.hpp"
#include "dat/config.hpp"
#include "train/message/held_weights.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// Returns whether an attack on weights of steps before takes newer ones from iteration to iteration; else it has the
/// oldest throughout.
[[nodiscard]] bool newer_between_iterations(const AttackSettings& options);

/// Weights on which an attack of `iterations` iterations runs (--staleness). Version v of the weights is
/// that before step number v, counted from 0: after v updates.
struct Staleness {
  int versions = 0;     ///< K: how many steps the oldest weights are behind
  bool refresh = true;  ///< newer weights between iterations; else the whole attack has the oldest ones
  int iterations = 1;   ///< n; 1 for an attack without gradients, which is made in one piece

  /// Iteration i of step t runs on version t - K + floor(i K / n), or on t - K throughout; none is older than `first`.
  [[nodiscard]] std::int64_t version(std::int64_t step, int iteration, std::int64_t first) const {
    const std::int64_t newer = refresh ? std::int64_t{iteration} * versions / iterations : 0;
    return std::max(step - versions + newer, first);
  }
};

/// Staleness of an attack by the options.
[[nodiscard]] Staleness staleness_of(const TrainOptions& options, const Attack& attack);

/// Attacks on the weights of steps before, chosen by a rule, so that a step's images do not depend on when who has made
/// them: keeps the last versions of weights and running statistics. Every rank keeps the same.
class OldWeights final : public Stateful {
 public:
  /// The replica must outlive it.
  OldWeights(const Staleness& staleness, Replica& replica);
  [[nodiscard]] std::int64_t checkpoint_bytes() const {
    return staleness_.versions * HeldWeights::memory(replica_.model());
  }

  /// Number of versions before step number `step`, with which the run begins; and the version of `age` steps before it.
  [[nodiscard]] int there_before(std::int64_t step) {
    stand_before(step);
    return there_;
  }
  [[nodiscard]] const HeldWeights& before(std::int64_t step, int age) const { return held_[place_of(step - age)]; }
  /// A step begins: keeps its weights.
  const HeldWeights& begin(std::int64_t step);
  /// Gives the network the weights of the first iteration of this step's attack.
  void take_up() { use(staleness_.version(step_, 0, first_)); }
  /// Gives it those of the next iteration, after `done` ones. Returns how many iterations these are for; 0: all.
  [[nodiscard]] int stretch(int done);
  /// Gives it the weights of this step back.
  void put_back() { use(step_); }

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  /// The network gets this version, and what it has had goes back to its place.
  void use(std::int64_t version);
  [[nodiscard]] std::size_t place_of(std::int64_t version) const;
  /// Renumbers the places as if weights had been saved up to the step before: place K - age has the version of so many
  /// steps before.
  void stand_before(std::int64_t step);
  [[nodiscard]] static std::string group_of(int age) { return "attack/before" + std::to_string(age); }

  Staleness staleness_;
  Replica& replica_;
  std::vector<HeldWeights> held_;  ///< [versions + 1], by place_of()
  std::int64_t step_ = -1, base_ = 0, first_ = 0;
  int there_ = 0;      ///< versions before the next step that are there when it begins; until then
  bool waits_ = true;  ///< no step has begun
  int in_use_ = -1;    ///< place of the weights that the network has; -1: its own
};

}  // namespace dat
