#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch/attacker.hpp"
#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "replica/replica.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// The first iterations of the attack on a step's first micro-batch, made with the weights of the step before
/// (--stale-attack), until that step comes. Part of the state of a run: each rank has its own.
class BegunAttack {
 public:
  /// iterations: how many are made ahead; 0: none, and there is never a begun attack. The references must outlive it.
  BegunAttack(Communicator& ranks, const Plan& plan, Replica& replica, int iterations);

  [[nodiscard]] int iterations() const { return iterations_; }
  [[nodiscard]] bool is_of(std::int64_t step) const { return now_.step == step; }
  /// Passes of the attack that has begun for the step to come; 0: there is none.
  [[nodiscard]] std::int64_t passes() const { return now_.passes; }

  /// Makes the first iterations for the step of the micro-batch that the attack has begun on, and keeps what they have
  /// reached. Returns the passes of the attack.
  [[nodiscard]] std::int64_t begin(Attacker& attacker);
  /// Has the attack go on after them, which has begun on the same micro-batch once more.
  void resume(Attacker& attacker);

  /// Bytes in a checkpoint of so many ranks.
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const {
    return iterations_ > 0 ? ranks * floats_of(plan_.micro_batch) * 4 : 0;
  }
  /// Reason why the attacks that a checkpoint had begun are discarded; empty where they are not, or there were none.
  [[nodiscard]] const std::string& dropped() const { return dropped_; }

  /// Saves the state: see Stateful.
  void save(Checkpoint& checkpoint);
  void restore(const Checkpoint& checkpoint);
  void forget();
  void share();

 private:
  [[nodiscard]] std::int64_t floats_of(std::int64_t images) const {
    return images * replica_.images().layout.elements();
  }
  /// Images of the attack that has begun.
  [[nodiscard]] std::int64_t images() const { return plan_.micro_batch_in(now_.step); }
  [[nodiscard]] std::vector<std::int64_t> shape_of(std::int64_t images) const {
    const Layout& layout = replica_.images().layout;
    return {ranks_.size(), images, layout.c, layout.h, layout.w};
  }
  /// Layout of images in files: [n][c][h][w].
  [[nodiscard]] Layout layout_of_files() const {
    const Layout& layout = replica_.images().layout;
    return {layout.c, layout.h, layout.w};
  }

  /// Goes from rank to rank as it lies in memory.
  struct State {
    std::int64_t step = -1;  ///< step of the attack; -1: there is none
    std::int64_t passes = 0;
  };
  Communicator& ranks_;
  Plan plan_;
  Replica& replica_;
  int iterations_;
  State now_;
  float* perturbation_ = nullptr;  ///< [micro_batch] images, on the device
  std::vector<float> restored_;    ///< attacks of all ranks, on rank 0, until share()
  std::string dropped_;
};

}  // namespace dat
