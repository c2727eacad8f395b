#pragma once

#include <cstdint>
#include <vector>

namespace dat {

/// Which samples a rank sees, in which order (torch.utils.data.DistributedSampler, shuffle, drop_last = False):
/// a permutation of N, wrapped around to a multiple of the number of ranks; rank r takes entries r, r + ranks, ...
/// A batch is the next `batch` of them, the last one of an epoch may be shorter.
///
/// A full batch is dealt out to its micro-batches like cards, so that micro-batch m of all ranks' micro-batches holds
/// the entries congruent to m: R ranks with one micro-batch see what 1 rank with R micro-batches sees.
class Sampler {
 public:
  Sampler(std::int64_t samples, int ranks, int rank, int batch, int micro_batch, std::uint64_t seed);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (per_rank_ + batch_ - 1) / batch_; }
  /// Samples of this rank in the last step of an epoch.
  [[nodiscard]] int last_batch() const { return static_cast<int>(per_rank_ - (steps_per_epoch() - 1) * batch_); }

  /// Draws the permutation of a shuffle number (an epoch). Allocates nothing.
  void shuffle(std::uint32_t number);
  /// Samples of step `step` of the epoch: fills indices[0 .. count) and returns count. `rank`: this one's, or
  /// another's, whose count is the same.
  int batch(std::int64_t step, std::int64_t* indices) const { return batch(step, rank_, indices); }
  int batch(std::int64_t step, int rank, std::int64_t* indices) const;

 private:
  std::int64_t samples_, per_rank_;
  int ranks_, rank_, batch_, micro_batch_;
  std::uint64_t seed_;
  struct Card {
    std::uint64_t key;
    std::int64_t sample;
  };
  std::vector<Card> deck_;
};

}  // namespace dat
