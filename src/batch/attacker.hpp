#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "batch/attack_plan.hpp"
#include "batch/buffers/buffers.hpp"
#include "batch/view/programs.hpp"
#include "batch/view/view.hpp"

namespace dat {

/// A part that changes something about the making of an attacked micro-batch. A member overrides the calls that it
/// needs.
class AttackPart {
 public:
  virtual ~AttackPart() = default;
  /// The micro-batch has been loaded, and is about to be attacked.
  virtual void loaded(const HostBatch& /*read*/, Batch& /*batch*/) {}
  /// The attack is about to begin, at random unless the view is given a start.
  virtual void begins(Objective& /*view*/) {}
  /// The attack that is made in place of `planned`, unless that has begun; null: that.
  [[nodiscard]] virtual const Attack* instead(const EpochAttack& /*planned*/) { return nullptr; }
  /// The network is about to be attacked, after `done` iterations: how many of the others may follow before this is
  /// asked again; 0: all.
  [[nodiscard]] virtual int stretch(int /*done*/) { return 0; }
};

/// Makes the attacked micro-batches of a training: any of them, by its number in what has been read. The result depends
/// on the images, the key, the attack of the epoch and the network's weights, and on nothing else, so that any rank may
/// do it, at any time. The only caller of Attack::perturb in a training. Allocates nothing once it is built.
class Attacker {
 public:
  /// statistics: takes what batch norm sees in the attack, which then runs on the network in training mode; null: it
  /// attacks the frozen network. The arguments must outlive it.
  Attacker(Buffers& buffers, Programs& programs, const AttackPlan& plan, StatisticsSink* statistics);

  /// The pixels of the training set, on the device; null: what is read brings its own.
  void keep_on_device(const std::uint8_t* pixels) { pixels_ = pixels; }
  [[nodiscard]] bool reads_pixels() const { return pixels_ == nullptr; }
  /// Has the part asked from now on; it must outlive this.
  void add(AttackPart& part) { parts_.push_back(&part); }

  /// Puts micro-batch number `index` of what has been read on the device. It may still be changed.
  Batch& load(const HostBatch& read, int index);
  [[nodiscard]] Batch& batch() { return buffers_.batch(); }
  /// The attack of its epoch.
  [[nodiscard]] const EpochAttack& planned() const { return plan_.in_epoch(buffers_.batch().key.epoch); }
  /// Begins its attack, with the weights as they are where the goal is taken against the logits of the clean images.
  /// Returns how the attack sees the network, for who begins elsewhere than at random.
  Objective& begin();
  /// Says that `done` iterations of its attack have been made, which have reached this perturbation.
  void resume(int done, const float* perturbation);
  /// Makes `count` iterations. Error(usage): the attack cannot be parted.
  void advance(int count);
  /// Makes the others, or all of an attack that does not iterate, and leaves the images in x_adv.
  void finish();
  /// Makes another attack in place of the planned one, which has not begun.
  void finish(const Attack& attack);

  /// Images that gradients have been computed for so far (Objective::passes).
  [[nodiscard]] std::int64_t passes() const { return passes_; }

 private:
  [[nodiscard]] View& view();
  [[nodiscard]] int stretch();

  Buffers& buffers_;
  Programs& programs_;
  const AttackPlan& plan_;
  std::unique_ptr<View> in_training_mode_;  ///< null: attacks are made on the frozen network
  std::vector<std::unique_ptr<AttackPart>> augmentations_;
  std::vector<AttackPart*> parts_;
  const std::uint8_t* pixels_ = nullptr;
  int done_ = 0;
  std::int64_t passes_ = 0;
};

}  // namespace dat
