#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "assess/broken_images.hpp"
#include "assess/journal.hpp"
#include "assess/planned_attacks.hpp"
#include "batch/view/frozen.hpp"
#include "dat/attack_sequence.hpp"
#include "dat/communicator.hpp"
#include "dat/dataset.hpp"

namespace dat {

/// Number of images that go through the network at a time while a sequence runs: 64 on a CPU, 256 on a GPU, and of a
/// network with many activations a half, a quarter, ... of that. The number depends on nothing else, not on --batch,
/// the ranks or the memory, so that what a library computes of an image never depends on the other images. Fewer may be
/// wanted of a pass (FrozenProgram::forward).
[[nodiscard]] int sequence_micro_batch(bool gpu, const Graph& network);

struct SequenceAttack {
  std::string name;
  std::unique_ptr<Attack> attack;
  int runs;         ///< restarts included
  int first_stage;  ///< number of the attack's first run in the sequence
};
/// The attacks of a sequence, planned, in order, after a first member "clean", which is no attack.
class SequenceAttacks : public PlannedAttacks<SequenceAttack> {
 public:
  using Member = SequenceAttack;
  /// alpha: step size of attacks that take a number of steps, as in an evaluation (evaluation_alpha).
  SequenceAttacks(const AttackSequence& sequence, BallNorm norm, double eps, double alpha, int classes);

  [[nodiscard]] int stages() const { return members_.back().first_stage + members_.back().runs; }
};

/// Results of a sequence on a set. All ranks have equal results, but for seconds, which are rank 0's.
struct SequenceResult {
  static constexpr int kRobust = -1;
  struct Image {
    /// Number of the attack that has broken the image; 0: the clean image is classified wrong.
    int broken_by = kRobust;
    int run = 0;          ///< run of that attack, counted from 1; 0: no attack has broken the image
    int prediction = 0;   ///< class of the image that was broken, else of the clean one
    double distance = 0;  ///< distance by the norm of the image that an attack has broken; else 0
    [[nodiscard]] bool robust() const { return broken_by == kRobust; }
    friend bool operator==(const Image&, const Image&) = default;
  };
  struct Row {  ///< row of an attack; the first one is of the clean images
    std::string attack;
    int runs = 1;
    /// Images that were attacked; of these, images that were classified wrong afterwards.
    std::int64_t images = 0, broken = 0;
    /// The number of these images at which, before the attack begins, the loss that it climbs has no gradient although
    /// they are classified right. The row of the clean images counts for the cross-entropy; other losses are looked at
    /// for APGD alone.
    std::int64_t zero_gradients = 0;
    double accuracy = 0;  ///< part of all images that is classified right after the attack
    double seconds = 0;   ///< seconds of the attack, over restarts
  };
  std::vector<Image> images;
  std::vector<Row> rows;
  [[nodiscard]] double accuracy() const { return rows.back().accuracy; }
};

/// Warnings about a network, from five forward passes over the same images (checks.py of AutoAttack's authors,
/// check_randomized and check_range_output, with their limits).
///
/// @param passes  [passes][images * classes] logits
/// @param labels  [images]
[[nodiscard]] std::vector<std::string> network_warnings(const std::vector<std::vector<float>>& passes,
                                                        const std::vector<std::int32_t>& labels);

/// Outcome of an attack on an image in [0, 1], from its logits, the clean and the attacked pixels.
[[nodiscard]] ImageOutcome outcome_of(std::span<const float> logits, std::span<const float> clean,
                                      std::span<const float> attacked, BallNorm norm, double eps);

/// Runs sequences of attacks over any number of ranks. After every run of an attack the ranks share which images it has
/// broken, and the images that are still right are dealt to the ranks anew. The flags do not depend on the ranks, on
/// the size of batches, on the order of images, or on where an evaluation was killed and went on.
///
/// An image that an attack leaves is checked: a forward pass of the evaluator's own must find it misclassified, and it
/// must be in the ball, to rounding, and in [0, 1].
class SequenceEvaluator {
 public:
  /// The images must have room for whole passes of sequence_micro_batch() images, and the objective's program must take
  /// as many images.
  SequenceEvaluator(Communicator& world, const Dataset& dataset, Buffers& images, FrozenView& objective);

  struct Progress {
    std::string attack;
    int run = 1, runs = 1;              ///< number of the run under way, and of all runs of the attack
    std::int64_t done = 0, images = 0;  ///< images of this run, with those that were done before an interruption
    std::int64_t right = 0;             ///< images of the set that are right so far
    double seconds = 0;                 ///< seconds of this attack
    double part = 0;                    ///< part of this attack that is done, if no more images are broken
  };
  struct Options {
    std::uint64_t seed = 1;
    std::vector<JournalEntry> found{};  ///< entries that were done before the interruption, equal on all ranks
    bool images_wanted = false;         ///< options.broken is to be given the images that attacks have broken
    // On rank 0, after each group of images; null: nobody. Images come before the entry that knows of them.
    BrokenImageSink broken{};
    std::function<void(const JournalEntry&)> entry{};
    std::function<void(const Progress&)> progress{};
  };
  /// Runs the attacks. **Collective.** Error(numerical): logits are not finite. Error(integrity): an attack has left
  /// the ball. Either error is on all ranks. Error(data): options.found is not of this evaluation.
  [[nodiscard]] SequenceResult run(const SequenceAttacks& attacks, const Options& options);

  /// Logits of some forward passes over the first images of the set, as many as are dealt at a time, for
  /// network_warnings(), and their labels. Not collective.
  [[nodiscard]] std::vector<std::vector<float>> logits_of_first(std::vector<std::int32_t>& labels);

 private:
  using Member = SequenceAttacks::Member;
  /// Attacks the next images of the list, as many as all ranks take at a time.
  [[nodiscard]] JournalEntry attack_group(const Member& member, int run, BallNorm norm, double eps,
                                          const Options& options, std::span<const std::int64_t> open);
  void load(const std::int64_t* ids, int count);
  void confirm(BallNorm norm, double eps);
  void flag_zero_gradients(SampleLoss* loss);
  [[nodiscard]] std::vector<float> fetch(const float* device, std::int64_t count) const;

  Communicator& world_;
  const Dataset& dataset_;
  Buffers& images_;
  FrozenView& objective_;
  HostBatch batch_;
  std::vector<float> x_adv_;            ///< images of the last confirm()
  std::vector<ImageOutcome> outcomes_;  ///< [capacity] outcomes of the last confirm()
  std::vector<float> confidences_;      ///< [capacity] those of the classes there
};

}  // namespace dat
