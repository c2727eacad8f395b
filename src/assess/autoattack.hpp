#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "assess/journal.hpp"
#include "dat/attack_sequence.hpp"
#include "dat/communicator.hpp"
#include "dat/dataset.hpp"
#include "replica/frozen_objective.hpp"

namespace dat {

/// How many images go through the network at a time while a sequence runs. The same for every --batch and number of
/// ranks: what a library computes of an image then never depends on the others. Fewer may be wanted of a pass
/// (FrozenProgram::forward).
[[nodiscard]] constexpr int sequence_micro_batch(bool gpu) { return gpu ? 256 : 64; }

/// The attacks of a sequence, planned.
class SequenceAttacks {
 public:
  /// alpha: of attacks that take a number of steps, as in an evaluation (evaluation_alpha).
  SequenceAttacks(const AttackSequence& sequence, BallNorm norm, double eps, double alpha, int classes);

  struct Member {
    std::string name;
    std::unique_ptr<Attack> attack;
    int runs;         ///< restarts included
    int first_stage;  ///< of its runs, in the sequence
  };
  /// The first one is "clean": no attack.
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] int stages() const { return members_.back().first_stage + members_.back().runs; }
  [[nodiscard]] BallNorm norm() const { return norm_; }
  [[nodiscard]] double eps() const { return eps_; }
  /// The most that one of them needs (Attack::scratch_images).
  [[nodiscard]] int scratch_images() const;
  /// What attacks have put in place of what the number of classes does not allow, and which of them cannot reach the
  /// border of the ball; each once.
  [[nodiscard]] std::vector<std::string> notices() const;

 private:
  BallNorm norm_;
  double eps_;
  std::vector<Member> members_;
};

/// What a sequence has found out about a set. The same on all ranks, but for seconds, which are rank 0's.
struct SequenceResult {
  static constexpr int kRobust = -1;
  struct Image {
    int broken_by = kRobust;  ///< number of the attack; 0: it is wrong without one
    int run = 0;              ///< of that attack, counted from 1; 0: no attack has broken it
    int prediction = 0;       ///< of the image that was broken, or of the clean one
    double distance = 0;      ///< by the norm, of the image that an attack has broken; else 0
    [[nodiscard]] bool robust() const { return broken_by == kRobust; }
    friend bool operator==(const Image&, const Image&) = default;
  };
  struct Row {  ///< of an attack; the first one of the clean images
    std::string attack;
    int runs = 1;
    std::int64_t images = 0, broken = 0;  ///< attacked; of these, classified wrong then
    /// Of these images, classified right, those where the loss that the attack climbs has no gradient before it begins.
    /// Clean: the cross-entropy. Looked at for other losses of APGD alone.
    std::int64_t zero_gradients = 0;
    double accuracy = 0;  ///< right behind it, as a part of all images
    double seconds = 0;   ///< over restarts
  };
  std::vector<Image> images;
  std::vector<Row> rows;
  [[nodiscard]] double accuracy() const { return rows.back().accuracy; }
};

/// What five forward passes over the same images say about a network (checks.py of the authors' code, check_randomized
/// and check_range_output, with their limits).
///
/// @param passes  [passes][images * classes] logits
/// @param labels  [images]
[[nodiscard]] std::vector<std::string> network_warnings(const std::vector<std::vector<float>>& passes,
                                                        const std::vector<std::int32_t>& labels);

/// What has become of an image in [0, 1], by its logits, the clean and the attacked pixels.
[[nodiscard]] ImageOutcome outcome_of(std::span<const float> logits, std::span<const float> clean,
                                      std::span<const float> attacked, BallNorm norm, double eps);

/// Runs sequences of attacks over any number of ranks. After every run of an attack the ranks share what it has broken,
/// and the images that are still right are dealt to them anew. The flags do not depend on the ranks, on the size of
/// batches, on the order of images, or on where an evaluation was killed and went on.
///
/// What an attack leaves is checked: a forward pass of its own must find it misclassified, and it must be in the ball,
/// to rounding, and in [0, 1].
class SequenceEvaluator {
 public:
  /// The images must have room for whole passes of sequence_micro_batch() images, and the objective's program must take
  /// as many.
  SequenceEvaluator(Communicator& world, const Dataset& dataset, Images& images, FrozenObjective& objective);

  struct Progress {
    std::string attack;
    int run = 1, runs = 1;              ///< the one under way
    std::int64_t done = 0, images = 0;  ///< of this run, those included that were done before an interruption
    std::int64_t right = 0;             ///< of all images, so far
    double seconds = 0;                 ///< of this attack
    double part = 0;                    ///< of this attack that is done, if no more images are broken
  };
  struct Options {
    std::uint64_t seed = 1;
    std::vector<JournalEntry> found{};  ///< what was done before, the same on all ranks
    bool images_wanted = false;         ///< those that attacks have broken
    // On rank 0, after each group of images; null: nobody is told. Images come before the entry that knows of them.
    std::function<void(std::int64_t image, const float* pixels)> broken{};  ///< [size][size][channels]
    std::function<void(const JournalEntry&)> entry{};
    std::function<void(const Progress&)> progress{};
  };
  /// **Collective.** Error(numerical): logits that are not finite. Error(integrity): an attack has left the ball. Both
  /// on all ranks. Error(data): `found` is not of this evaluation.
  [[nodiscard]] SequenceResult run(const SequenceAttacks& attacks, const Options& options);

  /// Logits of some forward passes over the first images of the set, as many as are dealt at a time, for
  /// network_warnings(), and their labels. Not collective.
  [[nodiscard]] std::vector<std::vector<float>> logits_of_first(int passes, std::vector<std::int32_t>& labels);

 private:
  using Member = SequenceAttacks::Member;
  /// The next of these images, as many as all ranks take at a time.
  [[nodiscard]] JournalEntry attack_group(const Member& member, int run, BallNorm norm, double eps,
                                          const Options& options, std::span<const std::int64_t> open);
  void load(const std::int64_t* ids, int count);
  void attack(const Member& member, int run, std::uint64_t seed);
  void confirm(BallNorm norm, double eps);
  void flag_zero_gradients(SampleLoss* loss);
  [[nodiscard]] std::vector<float> fetch(const float* device, std::int64_t count) const;
  /// The first `count` images here, of `most` on any rank, and those of the other ranks, where they were broken, to
  /// options.broken on rank 0.
  void hand_over_broken(int count, int most, const Options& options);

  Communicator& world_;
  const Dataset& dataset_;
  Images& images_;
  FrozenObjective& objective_;
  HostBatch batch_;
  std::vector<float> x_adv_;            ///< of the last confirm()
  std::vector<ImageOutcome> outcomes_;  ///< [capacity], likewise
};

}  // namespace dat
