#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/report.hpp"

namespace dat {

/// The robust accuracy of an evaluation on what is held out, of the weights of this name: under the attack that hurts
/// them most.
[[nodiscard]] double held_out_accuracy(const std::vector<EvaluationRecord>& records, const std::string& weights);

/// Catastrophic overfitting: the robust accuracy on images that are not trained on is more than 0.2 below the best
/// so far (-1: there is none yet). Wong, Rice, Kolter, "Fast is better than free: Revisiting adversarial training",
/// ICLR 2020: with FGSM this accuracy falls to nothing within an epoch; the authors' code (fast_adversarial,
/// CIFAR10/train_fgsm.py) ends the training where PGD's accuracy is more than 0.2 below that of the epoch before.
[[nodiscard]] inline bool overfits_catastrophically(double best, double accuracy) {
  constexpr double kMargin = 0.2;
  return accuracy < best - kMargin;
}

/// Record of the best network of a run so far, by its robust accuracy on held-out images, of the number of evaluations
/// since then, and of whether ckpt/best.h5 has it. Every rank has the record: rank 0 decides, share() sends it to the
/// others.
class BestNetwork {
 public:
  /// Takes up the record from the run's beginning, or from the checkpoint that it goes back to.
  void take_up(const BestRecord& record, std::int64_t evaluations_since);
  /// Rank 0's record to all. **Collective.**
  void share(Communicator& ranks);

  [[nodiscard]] double accuracy() const { return now_.record.accuracy; }  ///< -1: there is none yet
  [[nodiscard]] std::int64_t evaluations_since() const { return now_.since; }

  /// Takes the accuracy that an evaluation after this step has found. Returns whether it is the best one; then the
  /// network of the moment is to be saved.
  [[nodiscard]] bool judge(double accuracy, std::int64_t step);
  /// The last evaluation is made once more, and counts once.
  void forget_evaluation() { --now_.since; }

  /// Catastrophic overfitting, seen after this step by this accuracy, for people.
  [[nodiscard]] std::string overfitting_text(double accuracy, std::int64_t step) const;
  /// The early end of a run after this step, for people.
  [[nodiscard]] std::string early_end_text(std::int64_t step, std::int64_t planned_steps) const;

  /// Adds the record to a checkpoint. metrics_bytes: length of metrics.jsonl where the checkpoint is the best network's
  /// own.
  void save(Checkpoint& checkpoint) const { now_.record.save(checkpoint); }
  void save_as_best(Checkpoint& checkpoint, std::int64_t metrics_bytes);

  /// Sees to it that ckpt/best.h5 is the file of this record; where there is none, the best one is chosen anew from
  /// here on, and `warn` is called. On rank 0.
  void find(const CheckpointFolder& folder, const std::function<void(const std::string&)>& warn);

 private:
  /// Goes from rank to rank as it lies in memory.
  struct Standing {
    BestRecord record;
    std::int64_t since = 0;  ///< evaluations
  };
  Standing now_;
};

}  // namespace dat
