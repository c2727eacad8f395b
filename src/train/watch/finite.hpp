#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/learner/learner.hpp"
#include "train/message/step_message.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

/// First number of a step that is not finite: in the order of the step's work, then of the ranks.
struct BadNumbers {
  enum class Where : std::int32_t { images, statistics, loss, gradient, sum, nowhere };
  Where where = Where::nowhere;
  std::int32_t segment = -1;  ///< gradient, sum: the network's tensor that the backward pass reaches first
  std::int32_t rank = 0;      ///< rank in the launch

  /// The number in words: "the gradient of conv1.weight is not finite (rank 1)".
  [[nodiscard]] std::string text(const Parameters& parameters) const;
  /// Returns whether a step of a network of so many tensors may have such a number.
  [[nodiscard]] bool possible(std::ptrdiff_t segments) const;
};

/// Looks whether all numbers of a step are finite, before anything is updated with them: attacked images, batch
/// statistics, losses, the rank's own gradient, and what the sum over the ranks has made of the gradients. Gradients
/// and images are finite if the sums of their squares are: no f32 number has a square above 1.2e77, and squares are
/// added in double. A rank's verdict travels with the step's message (Vote). Queues work and waits for nothing;
/// allocates nothing.
class NumberCheck final : public MessagePart {
 public:
  struct Sizes {
    std::vector<std::int64_t> images;  ///< floats that an image may have
    std::vector<int> counts;           ///< images that a micro-batch may have
    int micro_batches = 1;             ///< most of a rank, in a step
    int gradients = 1;                 ///< most blocks of gradients that a rank brings to the reduction
  };
  NumberCheck(Communicator& ranks, Backend& backend, const Parameters& parameters, const Learner& learner,
              const BatchStatistics& statistics, Vote& vote, const Sizes& sizes);

  /// Begins a step.
  void begin() { images_ = gradients_ = 0; }
  /// Looks at the attacked images of the step's next micro-batch.
  void look_at_images(const Batch& batch);
  /// Looks at what this rank brings to the reduction (Reducer::own), of these layers.
  void look_at_own(std::span<float* const> gradients, const ActiveSet& layers);
  /// Looks at what the reduction has left in the gradients, of these layers.
  void look_at_sum(const ActiveSet& layers);

  /// Has the device find out whether all numbers of this rank's step are finite, once all has been looked at. The
  /// answer lies on the device until it does so again: 1, or 0 where one is not (Backend::only_where).
  const double* decide();
  /// First bad number of all ranks, once the message has been summed; that is **collective**. Null where everything is
  /// finite.
  [[nodiscard]] const BadNumbers* agreed();
  /// [segments][kSums] sums of squares of the mean gradient's active segments, once the message has been summed.
  [[nodiscard]] const double* squares() const { return host_ + at_sum_; }

  void fetch(Backend::Ticket& ticket) override;
  void write(double* to, int unit) override;

 private:
  [[nodiscard]] BadNumbers own_verdict() const;
  /// The last of the segments whose sum, from number `at` on, is not finite; -1: all are finite.
  [[nodiscard]] std::int32_t bad_segment(std::int64_t at) const;

  Communicator& ranks_;
  Backend& backend_;
  const Parameters& parameters_;
  const Learner& learner_;
  const BatchStatistics& statistics_;
  Vote& vote_;
  std::int64_t row_;                                     ///< numbers of a block of gradients
  std::vector<std::unique_ptr<ArrayInChunks>> tensors_;  ///< micro-batches of each size
  ChunkTable own_table_, sum_table_;
  std::int64_t at_own_, at_sum_, size_;
  double *partial_, *sums_,
      *host_;     ///< sums_, host_: of images, by micro-batch; of own gradients, by block; of the sum
  double* flag_;  ///< the device's answer
  int images_ = 0, gradients_ = 0, fetched_images_ = 0, fetched_gradients_ = 0;
  BadNumbers mine_, first_;
  std::vector<BadNumbers> all_;  ///< [ranks]
};

/// Effects of numbers that were not finite on a run: part of its state, so that a restart has equal bits.
class SkippedSteps final : public Stateful {
 public:
  std::int64_t in_a_row = 0;  ///< steps that were skipped since the last good one
  std::int64_t rollbacks = 0;
  double lr_factor = 1;  ///< factor of all learning rates from here on

  /// Saves nothing where nothing has happened.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;
};

}  // namespace dat
