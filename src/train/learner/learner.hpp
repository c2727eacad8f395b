#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "dat/batch.hpp"
#include "dat/loss.hpp"
#include "dat/recordings.hpp"
#include "replica/replica.hpp"
#include "train/plan/phase_timer.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

/// The training passes of a micro-batch: the loss's gradient by the weights, batch statistics, finished segments.
class Learner final : public MessagePart {
 public:
  /// batch: most images of this rank in a step. first_pass: number of the loss's first pass among those that enter the
  /// statistics. ready: called with each segment of the gradient that is complete, in the step's last pass. unlabelled:
  /// labels may be unknown. alike: the passes of a step's only micro-batch may be recorded, where the backend replays
  /// recordings, each as a whole: the forward pass, the loss, and the backward pass with all gradients. The same layers
  /// are active wherever as much of the network stands still (Model::frozen), `ready` may be called after the pass, and
  /// the time of all of it is that of the backward pass.
  Learner(Replica& replica, const Loss& loss, int batch, BatchStatistics& statistics, int first_pass, PhaseTimer& timer,
          std::function<void(int segment)> ready, bool unlabelled = false, bool alike = false);

  /// Adds the gradient of a micro-batch, for the weights of the active layers, to that of their unit of work in
  /// `gradients` [parameters.size], or begins it with them. Leaves the image gradient where it is wanted.
  void train(const Batch& batch, const ActiveSet& active, float* gradients);

  /// Means over the images of all ranks, once the message of the step has been summed; accuracy: over those with
  /// labels.
  struct Result {
    /// NaN: the loss does not look at these images.
    double loss = std::numeric_limits<double>::quiet_NaN(), accuracy = loss;
  };
  [[nodiscard]] const Result& of(Loss::Images images) const { return results_[static_cast<std::size_t>(images)]; }
  [[nodiscard]] std::int64_t images() const { return images_; }
  /// The losses of `count` images of this rank's part of the step, from number `first` on, added up over the passes.
  /// Once the message has been summed.
  [[nodiscard]] double loss_of(int count, int first = 0) const;
  /// The losses on the device, [passes][stride], of which the first `images` of each pass are there.
  struct Losses {
    const float* values;
    std::int64_t passes, stride, images;
  };
  [[nodiscard]] Losses losses() const;
  /// Returns whether the losses of this rank's images are finite, once they have been fetched.
  [[nodiscard]] bool own_finite() const { return std::isfinite(loss_of(fetched_.images)); }

  [[nodiscard]] std::size_t places() const override { return 1 + 2 * passes_.size() + (unlabelled_ ? 1 : 0); }
  void fetch(Backend::Ticket& ticket) override;
  void write(double* to, int unit) override;
  void read(const double* from) override;

 private:
  /// The network for the images of a pass.
  [[nodiscard]] TrainingProgram& program(const Batch& batch, std::size_t pass) {
    return replica_.training(batch.n * (passes_[pass] == Loss::Images::attacked ? copies_ : 1));
  }
  /// Returns whether the pass has one image for all copies of it that the attacked pass has, with noise of their own:
  /// the loss takes repetitions of it.
  [[nodiscard]] bool repeats(std::size_t pass) const { return copies_ > 1 && passes_[pass] != Loss::Images::attacked; }
  [[nodiscard]] const float* input(const Batch& batch, std::size_t pass);
  /// Makes the pass on the images x up to the logits, and keeps them where others look at them. whole: as
  /// TrainingProgram::forward has it.
  void forward(const Batch& batch, std::size_t pass, const float* x, bool whole);
  /// Makes the pass up to the gradient by its logits.
  void forward_and_loss(const Batch& batch, std::size_t pass, const float* x, bool whole);
  /// Says where the logits of all passes are, and where what the loss makes of them goes.
  void place_results(const Batch& batch);

  /// Key of a part of a pass.
  struct Part {
    enum class Way : std::uint8_t { ahead, both } way;
    const TrainingProgram* network;
    std::size_t pass;
    int images, averaged, frozen;
    const float *x, *gradients, *first_logits;
    const std::int32_t* labels;
    friend bool operator==(const Part&, const Part&) = default;
  };

  /// The images of this rank.
  struct Own {
    std::vector<int> ends;  ///< images up to the end of each unit of work
    int images = 0;
  };

  Replica& replica_;
  const Loss& loss_;
  std::vector<Loss::Images> passes_;
  int copies_;          ///< copies of each image under noise
  std::int64_t batch_;  ///< most copies of this rank in a step
  BatchStatistics& statistics_;
  int first_pass_;
  PhaseTimer& timer_;
  std::function<void(int)> ready_;
  bool unlabelled_, records_;       ///< records: passes are recorded
  std::vector<Logits> logits_;      ///< [passes]
  std::vector<float*> kept_;        ///< [passes] logits of the micro-batch at hand, where passes need those of others
  double* scratch_ = nullptr;       ///< Logits::scratch
  std::int32_t* labels_ = nullptr;  ///< labels of the micro-batch's copies
  float* repeated_gradient_ = nullptr;  ///< gradient by repeated logits
  float *losses_, *corrects_;           ///< [passes][batch]
  float* host_;                         ///< numbers fetched from losses_, then from corrects_
  Own own_, fetched_;                   ///< numbers of the present step, and of the losses that have been fetched
  std::int64_t images_ = 0;             ///< images of all ranks
  Result results_[3];                   ///< results by Loss::Images
  Recordings<Part> recorded_;
};

}  // namespace dat
