#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Mixture of batches of a labelled set, samples [0, labelled), and an extra set after it, samples [labelled, labelled
/// + extra). Images are dealt out in groups, whose first images are labelled; a pool has groups of one image.
struct Mix {
  /// A pool of `samples` samples, which is not mixed.
  Mix(std::int64_t samples) : labelled(samples) {}
  /// Every micro-batch takes `share` of its images, 0 < share < 1, from the labelled set and the others from the extra
  /// set (Carmon, Raghunathan, Schmidt, Duchi, Liang, "Unlabeled Data Improves Adversarial Robustness", NeurIPS 2019,
  /// and its code, SemiSupervisedSampler; Rebuffi et al., "Data Augmentation Can Improve Robustness", NeurIPS 2021). A
  /// group is the smallest number of images with this share. Error(usage): the micro-batch holds no such share, or a
  /// set is empty.
  Mix(std::int64_t labelled, std::int64_t extra, double share, int micro_batch);

  std::int64_t labelled, extra = 0;
  int group = 1, labelled_of_group = 1;

  [[nodiscard]] std::int64_t samples() const { return labelled + extra; }
};

/// The share of labelled images that --mix asks for: "pool" is 1, "balanced:SHARE" a number or a fraction between 0 and
/// 1. Error(usage): something else.
[[nodiscard]] double read_mix(const std::string& word);

/// Division of an epoch among ranks, steps and micro-batches. With M = ranks * (batch / micro_batch), the epoch has the
/// next multiple of M entries, the first samples coming again at its end. So every step of every rank, the last and
/// shorter one too, has the same number of micro-batches, all of one size. A batch larger than a rank's share is cut to
/// this share: its micro-batches become smaller, and fewer only where there would be less than one image for each. In a
/// mix all this holds for groups instead of samples; an epoch has as many groups as give each labelled image once.
struct EpochPlan {
  /// micro_batch: a divisor of `batch`, or 0: the whole batch; a multiple of the mix's group.
  EpochPlan(const Mix& mix, int ranks, int batch, int micro_batch);

  std::int64_t per_rank;  ///< samples of one rank, those that come again included: a multiple of micro_batches
  int micro_batches;      ///< micro-batches of a step
  int batch;              ///< samples of one rank and step, but the last: at most per_rank

  [[nodiscard]] int micro_batch() const { return batch / micro_batches; }
  [[nodiscard]] std::int64_t steps() const { return (per_rank + batch - 1) / batch; }
  /// Samples of one rank in the last step.
  [[nodiscard]] int last_batch() const { return static_cast<int>(per_rank - (steps() - 1) * batch); }
};

/// Samples that a rank sees, in order (torch.utils.data.DistributedSampler, shuffle, drop_last = False): a permutation
/// of N, wrapped around as EpochPlan says; rank r takes entries r, r + ranks, ... A batch is the next `batch` of these
/// entries; the last batch of an epoch may be shorter.
///
/// A batch is dealt out to its micro-batches like cards, so that micro-batch m of all ranks' micro-batches holds the
/// entries congruent to m: R ranks with one micro-batch see what 1 rank with R micro-batches sees.
///
/// In a mix, groups are dealt out. The labelled images of group g are entries g a, g a + 1, ... of the labelled set's
/// permutation, a in each group. The extra images have a permutation of their own, which lasts for as many epochs as it
/// fills; each epoch takes the next part of it, wrapped around only where the extra set is too small for one epoch.
class Sampler {
 public:
  Sampler(const Mix& mix, int ranks, int batch, int micro_batch, std::uint64_t seed);

  [[nodiscard]] const EpochPlan& plan() const { return plan_; }

  /// Draws the permutation of a shuffle number (an epoch). Allocates nothing.
  void shuffle(std::uint32_t number);
  /// Samples of a rank in step `step` of the epoch, one micro-batch after the other: fills indices[0 .. count) and
  /// returns count, which is the same for all ranks.
  int batch(std::int64_t step, int rank, std::int64_t* indices) const;

 private:
  struct Card {
    std::uint64_t key;
    std::int64_t sample;
    auto operator<=>(const Card&) const = default;
  };
  void draw(std::vector<Card>& deck, std::int64_t first, std::uint32_t number) const;

  Mix mix_;
  EpochPlan plan_;
  int ranks_;
  std::uint64_t seed_;
  std::int64_t extra_entries_;  ///< extra entries of an epoch
  /// Start of the epoch in the permutation of the extra set, and the number of this permutation.
  std::int64_t extra_first_ = 0, extra_number_ = -1;
  std::vector<Card> deck_, extra_;
};

}  // namespace dat
