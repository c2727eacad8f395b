#pragma once

#include "batch/attacker.hpp"
#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "train/learner/learner.hpp"
#include "train/plan/plan.hpp"
#include "train/plan/step_method.hpp"

namespace dat {

/// A micro-batch of a step: the rank that has it, and its number among those of that rank.
struct MicroBatch {
  int rank = 0, index = 0;
  int ranks = 1;  ///< size of the rank's group
};

/// Recomputes the work of any rank for a micro-batch of the present step: images, cuts, attack, training passes. It
/// needs nothing of that rank: samples and random numbers are counted, and the weights are the same on all ranks until
/// the step's update. The order of all sums is that of the rank itself, so on an equal device, with deterministic
/// algorithms, the result has its bits.
///
/// It uses the replica's images and programs, so it runs when the step has no use for them any more. It takes memory
/// when it is built: one flat block of gradients, and a batch on the host.
///
/// What a rank has for itself cannot be recomputed: perturbations of --warm-start, attacks begun by --stale-attack,
/// statistics of --bn-statistics local.
class Recompute {
 public:
  /// The reference arguments but options and plan must outlive it.
  Recompute(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
            const StepMethod& method, Replica& replica, PhaseTimer& timer);

  /// Batch statistics and losses of what has been recomputed last, as a step's message has those of a unit of work.
  void write_numbers(double* to);
  [[nodiscard]] std::size_t numbers() const { return learner_.places() + statistics_.places(); }

  /// The pixels of the training set, on the device; else they are read for each call.
  void keep_on_device(const std::uint8_t* pixels) { attacker_.keep_on_device(pixels); }

  /// The gradient of the weights of the active layers: its part of the mean over the step, as the rank brings it to the
  /// reduction. A flat block [parameters.size] on the device, valid until the next call. Waits for the device.
  [[nodiscard]] const float* recompute(std::int64_t step, MicroBatch of, const ActiveSet& active);
  /// The losses of its images, added up over them and the passes.
  [[nodiscard]] double loss() const { return loss_; }

 private:
  Replica& replica_;
  PhaseTimer& timer_;
  BatchReader reader_;
  HostBatch batch_;
  BatchStatistics statistics_;  ///< statistics that nobody reads
  Attacker attacker_;
  Learner learner_;
  float* gradients_;
  double loss_ = 0;
};

}  // namespace dat
