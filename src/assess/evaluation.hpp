#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "assess/broken_images.hpp"
#include "assess/planned_attacks.hpp"
#include "batch/view/frozen.hpp"
#include "dat/attack.hpp"
#include "dat/communicator.hpp"
#include "dat/report.hpp"

namespace dat {

/// Attacks of an evaluation: words as --eval takes them, and the settings that all its attacks share.
struct EvaluationOptions {
  std::vector<std::string> attacks;
  BallNorm norm = BallNorm::linf;
  double eps = 8.0 / 255;
  double alpha = 0;  ///< step size; 0: the attack's own
  int classes = 10;  ///< classes of the network
};

struct PlannedAttack {
  std::string name;
  std::unique_ptr<Attack> attack;
  int restarts;  ///< 1 where there is no random start to repeat
};
/// The attacks of evaluations, planned.
class EvaluationAttacks : public PlannedAttacks<PlannedAttack> {
 public:
  using Member = PlannedAttack;
  explicit EvaluationAttacks(const EvaluationOptions& options);
};

/// The mean; NaN of no values.
[[nodiscard]] double mean(const std::vector<double>& values);

/// Results of an evaluation for each image. All arrays are [samples of the set], in its order, on all ranks.
struct EvaluationResult {
  struct Outcome {
    /// Attacked: loss of the worst restart; 1 where the image is right after all restarts.
    std::vector<double> loss, correct;
    std::vector<double> prediction;  ///< attacked: class after the worst restart of those that leave the image wrong
    Picture picture{};               ///< attacked: of the first images, as the last restart has left them; on rank 0
  };
  Outcome clean;
  std::vector<Outcome> attacked;  ///< outcome of each attack
  /// Bytes of the outcomes of so many images and attacks, at most.
  [[nodiscard]] static std::size_t bytes(std::int64_t images, std::size_t attacks) {
    constexpr std::size_t kOfAnImage = 3 * sizeof(double);
    return static_cast<std::size_t>(images) * (1 + attacks) * kOfAnImage;
  }
  double seconds = 0;

  /// One record for each attack, with accuracies, losses and the attack's settings; step, time and set are the
  /// caller's.
  [[nodiscard]] std::vector<EvaluationRecord> records(const EvaluationAttacks& attacks) const;
};

/// Accuracy on a data set, clean and attacked, spread over the ranks; every sample counts once. The result for an image
/// does not depend on the ranks or on the image's neighbours in a batch: the runs of an attack (Attack::runs) after the
/// run that breaks the image do not count, whether or not they are made for other images.
class Evaluator {
 public:
  /// Distribution of samples to the ranks. samples: rank r takes samples r, r + ranks, ... batches: the set is cut into
  /// batches of as many samples as the device takes at once, and rank r takes batches r, r + ranks, ..., so that any
  /// number of ranks computes the same batches.
  enum class Dealing : std::uint8_t { samples, batches };
  /// all: the dataset's pixels on the device, or null. shown: images in a picture; 0: there is none.
  Evaluator(Communicator& world, const Dataset& dataset, const std::uint8_t* all, Buffers& images,
            FrozenView& objective, Dealing dealing = Dealing::samples, int shown = 0);
  /// **Collective.** `progress`, where it is given, is called with the number of images of this rank that are done.
  ///
  /// @param broken  Takes, on rank 0, each image that is right clean and wrong after an attack: as the first such
  ///                attack leaves it, after the restart whose class counts. Null on all ranks: nobody does. The results
  ///                are the same.
  [[nodiscard]] EvaluationResult run(const EvaluationAttacks& attacks, std::uint64_t seed,
                                     const std::function<void(std::int64_t)>& progress = {},
                                     const BrokenImageSink* broken = nullptr);
  [[nodiscard]] const Dataset& dataset() const { return dataset_; }

 private:
  /// Makes an attack, the `number`-th from 1, on all images of the batch, and books what it leaves.
  void attack(const EvaluationAttacks::Member& member, int number, std::uint64_t seed,
              EvaluationResult::Outcome& worst);
  /// Books the last measurement of the k-th image of the batch, where it is worse than the one booked so far. Returns
  /// whether the class that counts is now that of this measurement, and wrong.
  bool fold(std::size_t k, EvaluationResult::Outcome& worst, bool first);
  /// Copies the k-th image of the batch, which attack `number` has broken, unless it was wrong before.
  void keep(std::size_t k, int number);
  /// Gives the images of the batch that are kept to `take`. **Collective.**
  void hand_over(const BrokenImageSink& take);
  /// Fetches what the network makes of the images at `x`.
  void measure(const float* x);
  /// A picture of the first images of the batch, clean above attacked.
  [[nodiscard]] Picture picture() const;
  Communicator& world_;
  const Dataset& dataset_;
  const std::uint8_t* all_;
  Buffers& images_;
  FrozenView& objective_;
  Dealing dealing_;
  int shown_;
  HostBatch batch_;
  float *loss_, *correct_;
  std::vector<float> host_loss_, host_correct_, host_logits_;  ///< results of a batch
  std::vector<double> breaking_;  ///< the highest loss with which an image of the batch was classified wrong
  /// An image of the batch that is kept: the number of the attack that has broken it; 0: none, -1: it is wrong clean.
  struct Kept {
    int attack = 0;
    float confidence = 0;
  };
  std::vector<Kept> kept_of_;  ///< [capacity]
  std::vector<float> kept_;    ///< their pixels; empty: nobody wants them
};

}  // namespace dat
