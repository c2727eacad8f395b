#pragma once

#include <cstdint>
#include <vector>

namespace dat {

/// How an epoch is shared out among ranks, steps and micro-batches. With M = ranks * (batch / micro_batch), the epoch
/// has the next multiple of M entries, the first samples coming again at its end. So every step of every rank, the last
/// and shorter one too, has the same number of micro-batches, all of one size. A batch larger than a rank's share is
/// cut to it: its micro-batches become smaller, and fewer only where there would be less than one image for each.
struct EpochPlan {
  /// micro_batch: a divisor of `batch`, or 0: the whole batch.
  EpochPlan(std::int64_t samples, int ranks, int batch, int micro_batch);

  std::int64_t per_rank;  ///< samples of one rank, those that come again included: a multiple of micro_batches
  int micro_batches;      ///< of a step
  int batch;              ///< samples of one rank and step, but the last: at most per_rank

  [[nodiscard]] int micro_batch() const { return batch / micro_batches; }
  [[nodiscard]] std::int64_t steps() const { return (per_rank + batch - 1) / batch; }
  /// Samples of one rank in the last step.
  [[nodiscard]] int last_batch() const { return static_cast<int>(per_rank - (steps() - 1) * batch); }
};

/// Which samples a rank sees, in which order (torch.utils.data.DistributedSampler, shuffle, drop_last = False): a
/// permutation of N, wrapped around as EpochPlan says; rank r takes entries r, r + ranks, ... A batch is the next
/// `batch` of them, the last one of an epoch may be shorter.
///
/// A batch is dealt out to its micro-batches like cards, so that micro-batch m of all ranks' micro-batches holds the
/// entries congruent to m: R ranks with one micro-batch see what 1 rank with R micro-batches sees.
class Sampler {
 public:
  Sampler(std::int64_t samples, int ranks, int rank, int batch, int micro_batch, std::uint64_t seed);

  [[nodiscard]] const EpochPlan& plan() const { return plan_; }

  /// Draws the permutation of a shuffle number (an epoch). Allocates nothing.
  void shuffle(std::uint32_t number);
  /// Samples of step `step` of the epoch, one micro-batch after the other: fills indices[0 .. count) and returns count.
  /// `rank`: this one's, or another's, whose count is the same.
  int batch(std::int64_t step, std::int64_t* indices) const { return batch(step, rank_, indices); }
  int batch(std::int64_t step, int rank, std::int64_t* indices) const;

 private:
  EpochPlan plan_;
  std::int64_t samples_;
  int ranks_, rank_;
  std::uint64_t seed_;
  struct Card {
    std::uint64_t key;
    std::int64_t sample;
  };
  std::vector<Card> deck_;
};

}  // namespace dat
