#include "train/examples/old_weights.hpp"

#include <algorithm>
#include <cassert>

namespace dat {

const char* const kThere = "attack_versions";

bool newer_between_iterations(const AttackSettings& options) {
  return attacks().reads(options.attack, "staleness") && options.attack_stop < 0;
}

Staleness staleness_of(const TrainOptions& options, const Attack& attack) {
  return {.versions = options.staleness,
          .refresh = newer_between_iterations(options),
          .iterations = std::max(1, attack.gradient_evaluations())};
}

OldWeights::OldWeights(const Staleness& staleness, Replica& replica) : staleness_(staleness), replica_(replica) {
  for (int version = 0; version <= staleness_.versions; ++version)
    held_.emplace_back(replica, "weights of steps before");
}

std::size_t OldWeights::place_of(std::int64_t version) const {
  return static_cast<std::size_t>(version - base_) % held_.size();
}

void OldWeights::stand_before(std::int64_t step) {
  if (!waits_) return;
  base_ = step - staleness_.versions;
  first_ = step - there_;
}

const HeldWeights& OldWeights::begin(std::int64_t step) {
  stand_before(step);
  waits_ = false;
  step_ = step;
  HeldWeights& now = held_[place_of(step)];
  now.keep();
  return now;
}

void OldWeights::use(std::int64_t version) {
  const int place = version == step_ ? -1 : static_cast<int>(place_of(version));
  if (place == in_use_) return;
  for (const int one : {in_use_, place})
    if (one != -1) held_[static_cast<std::size_t>(one)].exchange();
  in_use_ = place;
}

int OldWeights::stretch(int done) {
  if (!staleness_.refresh) return 0;
  assert(done < staleness_.iterations);
  const std::int64_t version = staleness_.version(step_, done, first_);
  int count = 1;
  while (done + count < staleness_.iterations && staleness_.version(step_, done + count, first_) == version) ++count;
  use(version);
  return count;
}

void OldWeights::save(Checkpoint& checkpoint) {
  const std::int64_t step = integer_of(checkpoint, "step");
  stand_before(step);
  const auto there = static_cast<int>(std::min<std::int64_t>(staleness_.versions, step - first_));
  checkpoint.integers[kThere] = there;
  for (int age = 1; age <= there; ++age) held_[place_of(step - age)].save(checkpoint, group_of(age));
}

void OldWeights::restore(const Checkpoint& checkpoint) {
  there_ = static_cast<int>(std::clamp<std::int64_t>(value_of(checkpoint.integers, kThere), 0, staleness_.versions));
  for (int age = 1; age <= there_; ++age)
    held_[static_cast<std::size_t>(staleness_.versions - age)].restore(checkpoint, group_of(age));
}

void OldWeights::share(Communicator& ranks) {
  ranks.broadcast(&there_, sizeof there_);
  for (int age = 1; age <= there_; ++age) held_[static_cast<std::size_t>(staleness_.versions - age)].share(ranks);
}

}  // namespace dat
