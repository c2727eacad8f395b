#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "batch/attacker.hpp"
#include "train/trainer.hpp"

namespace dat {

struct StepOptions {
  std::string network = "resnet18";
  int width = 64, batch = 64;  ///< images of a rank
  int size = 32;               ///< height = width of the images
  int micro_batch = 0;         ///< images that are attacked and trained on at a time; 0: all of them
  int attack_batch = 0;        ///< images per pass of the attack; 0: the micro-batch
  std::string attack = "pgd";
  std::string attack_bn = "auto";  ///< statistics of the attack: auto | eval | train
  int attack_steps = 10;           ///< gradient steps of pgd
  double lambda = 0;               ///< weight of the loss on clean images
  bool overlap = false;            ///< send gradients while the backward pass runs
  std::int64_t bucket = 1 << 20;
  std::string device = "auto";
  int threads = 2;
  std::string math = "tf32";
  std::string attack_precision = "f32", precision = "f32";
  std::string recompute = "none";  ///< recomputation in training: none | norms
  double planning_seconds = 30;    ///< time for trials of GPU algorithms
};

/// The step of a training run, on images that are drawn: by default PGD with running statistics, one pass with batch
/// statistics on the adversarial images, the reduction, SGD (lr 0.01, momentum 0.9). With FGSM, that of Wong, Rice,
/// Kolter ("Fast is better than free", 2020): a random start in the ball and the box, one step of 10/255 on batch
/// statistics, weight decay 5e-4. The scripts in bench/peers make these steps on the same weights, images and labels
/// (inputs.py).
class TrainingStep {
 public:
  /// Error(usage): sizes that do not divide each other; Error as of the backend.
  TrainingStep(Communicator& ranks, const StepOptions& options);

  /// Makes one step, and leaves its milliseconds in the members below. **Collective.** The device is idle when it
  /// begins, and has done all of it when it ends: wall_ms has what the host needs before the first kernel and after the
  /// last one.
  void run();
  double wall_ms = 0;  ///< time by the host's clock
  double gpu_ms = 0;   ///< time from a stamp before the step to one after it, in the GPU's queue; 0 on a CPU
  double attack_ms = 0, train_ms = 0, reduce_ms = 0, update_ms = 0;  ///< times of its parts, by the device's stamps

  /// Makes `steps` steps as a training does, none of which waits for the one before, and then waits for the device.
  /// Milliseconds of one of them by the host's clock. **Collective.** A step waits once by itself, with one rank, too:
  /// for gradients, losses and batch statistics, before it queues its update. So a GPU makes the update while the host
  /// begins the next step, and nothing from the end of a backward pass until the host has queued that update.
  [[nodiscard]] double flow_ms(int steps);

  /// Makes one iteration of the attack on the images that are loaded: gradient and update.
  void attack_iteration();

  struct Losses {
    double clean, attacked, trained;
  };
  /// Error(numerical) unless the attack, where there is one, raises the loss and a step leaves finite numbers: no
  /// timing of wrong work. The first call warms up, too. **Collective.**
  Losses check();

  /// Results of the same network for a comparison with other programs: after three passes in training mode, so that
  /// running statistics matter, logits [batch, 10] and input gradient [batch, 3, size, size] of the sum of the losses
  /// at the clean images, and the mean loss before and after an attack that starts at them. All of it as the attack
  /// sees the network: on batch statistics, where it does.
  struct Results {
    std::vector<float> logits, input_gradient;
    double clean_loss, attacked_loss;
  };
  [[nodiscard]] Results results();

  /// Settings of the measurement, for a line of JSON.
  [[nodiscard]] nlohmann::ordered_json about();

  [[nodiscard]] const StepOptions& options() const { return options_; }
  [[nodiscard]] Trainer& trainer() { return trainer_; }
  [[nodiscard]] Backend& backend() { return trainer_.replica().backend(); }
  [[nodiscard]] bool on_gpu() { return backend().device().kind == DeviceKind::cuda; }
  [[nodiscard]] const Graph& graph() const { return trainer_.model().graph; }

 private:
  /// The network as the attack sees it, at the first images of the set, as many as a micro-batch has, that `attack`
  /// leaves: logits, losses, gradient. start: null: a random one.
  [[nodiscard]] const Objective& look(const Attack& attack, const float* start);
  [[nodiscard]] double mean_loss(const Objective& objective);

  StepOptions options_;
  Trainer trainer_;
  HostBatch batch_;
  std::unique_ptr<Attack> none_;
  float* zeros_;
  std::unique_ptr<BatchStatistics>
      statistics_;  ///< statistics of attacks on batch statistics, which nobody reads; null: attacks on running ones
  std::unique_ptr<Attacker> attacker_;
};

}  // namespace dat
