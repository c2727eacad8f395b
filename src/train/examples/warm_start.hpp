#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dat/attack.hpp"
#include "dat/backend.hpp"
#include "dat/loader.hpp"
#include "train/message/stateful.hpp"

namespace dat {

struct WarmStartOptions {
  std::int64_t samples = 0;      ///< samples of the training set
  Layout layout;                 ///< layout of images on the device, where they are not cut smaller
  int micro_batch = 1;           ///< most samples of one attack
  bool repeats = false;          ///< a step may have samples any number of times
  int rounds = 1;                ///< most micro-batches of a rank in a step
  bool goes_back = false;        ///< put_back() works, which takes memory
  std::int64_t reset_steps = 1;  ///< steps after which all is forgotten: attacks of the multiples start at random
};

/// Starts the attack on a training sample from the perturbation that the last one left for it (Zheng, Zhang, Gu, Zhang,
/// Lee, Prakash, "Efficient Adversarial Training with Transferable Adversarial Examples", CVPR 2020, section 4: ATTA).
/// Perturbations are kept in the coordinates of the original image: the crop and the mirroring of an epoch are undone
/// when one is stored (inverse data augmentation), and those of the next epoch done when it is used; so crops of any
/// size may follow each other. Pixels that a crop cuts off keep their old perturbation. Where there is none (after a
/// reset, and in the padding) the start is random.
///
/// Rank id % ranks keeps sample id, h*w*c bytes (kernels::to_byte), on the host. Where a sample comes several times
/// in an epoch, its last perturbation is kept, in the order of steps, ranks and places in the batch.
class WarmStart final : public Stateful {
 public:
  WarmStart(Communicator&, Backend&, const WarmStartOptions&);

  /// eps: radius of the step's attack, in L-infinity. Perturbations are kept in parts of it, so they grow with it.
  /// Leaves the start in objective.eta and points objective.start to it. The objective is prepared for samples [first,
  /// first + objective.n) of a batch that names everyone's; crops [objective.n] on the device. All ranks call it, or
  /// help(), for the same `step`, `first` and n. Returns the bytes that go from this rank to others, now and when they
  /// return. Allocates nothing. **Collective.**
  std::int64_t load(Objective& objective, double eps, const Crop* crops, const HostBatch& batch, int first,
                    std::int64_t step);
  /// Does load()'s work for the other ranks, on a rank that has no micro-batch of n samples left there: not at 0.
  std::int64_t help(const HostBatch& batch, int first, int n);
  /// Keeps what the attack has left of the samples loaded last: x_adv - x. Waits for nothing; the next collective call
  /// brings it home.
  void keep(const Objective& objective, double eps, const Crop* crops);

  /// Takes back what the step that is being done has kept so far: all ranks, when it has no load() or help() left.
  void put_back();

  /// Bytes of all samples.
  [[nodiscard]] std::int64_t bytes() const { return options_.samples * image_bytes_; }
  /// Adds state/perturbations, uint8 [samples, h, w, c], on rank 0. **Collective.**
  void save(Checkpoint& checkpoint) override;
  /// Takes them from there, on rank 0; share() then gives them to all. Error(checkpoint): missing, or of another shape.
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  void settle();
  std::int64_t bring(const HostBatch& batch, int first, int n);
  void transfer(std::vector<std::uint8_t>& whole, bool home);
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    return {options_.samples, options_.layout.h, options_.layout.w, options_.layout.c};
  }

  Communicator& world_;
  Backend& backend_;
  WarmStartOptions options_;
  std::int64_t image_bytes_, slots_, most_lent_ = 0;         ///< slots_: samples that a rank keeps, or one more
  std::vector<std::uint8_t> state_;                          ///< [slots][h*w*c]; sample id is number id / ranks
  std::vector<std::uint8_t> restored_;                       ///< perturbations of all samples, on rank 0, until share()
  std::unique_ptr<std::uint8_t[]> lent_;                     ///< perturbations that this rank keeps for others: by rank
  std::vector<std::int64_t> lent_slots_;                     ///< slot of each of these
  std::vector<int> lent_bytes_, borrowed_bytes_;             ///< [ranks]
  std::uint8_t *borrowed_ = nullptr, *on_device_ = nullptr;  ///< [micro_batch][h*w*c] of the images at hand: by owner
  std::vector<std::int64_t> places_, next_;                  ///< [micro_batch] image -> its number there; [ranks]
  std::int64_t* device_places_ = nullptr;
  std::unique_ptr<std::uint8_t[]> before_;  ///< perturbations that this rank kept before the step ...
  std::vector<std::int64_t> before_slots_;  ///< ... in these slots
  Backend::Ticket ticket_ = 0;
  bool under_way_ = false;  ///< keep() has been called, the owners have nothing yet
};

}  // namespace dat
