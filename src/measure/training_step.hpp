#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/trainer.hpp"

namespace dat {

struct StepOptions {
  std::string network = "resnet18";
  int width = 64, batch = 64;  ///< images of a rank
  int size = 32;               ///< height = width of the images
  int micro_batch = 0;         ///< images that are attacked and trained on at a time; 0: all of them
  int attack_batch = 0;        ///< images per pass of the attack; 0: the micro-batch
  std::string attack = "pgd";
  int attack_steps = 10;  ///< gradient steps of pgd
  double lambda = 0;      ///< weight of the loss on clean images
  bool overlap = false;   ///< send gradients while the backward pass runs
  std::int64_t bucket = 8 << 20;
  std::string device = "auto";
  int threads = 2;
  std::string math = "tf32";
  std::string attack_precision = "f32";
};

/// The step of a training run, on images that are drawn: by default PGD with running statistics, one pass with batch
/// statistics on the adversarial images, the reduction, SGD (lr 0.01, momentum 0.9). The scripts in bench/peers make
/// this step on the same weights, images and labels (inputs.py).
class TrainingStep {
 public:
  /// Error(usage): sizes that do not divide each other; Error as of the backend.
  TrainingStep(Communicator& ranks, const StepOptions& options);

  /// Makes one step. Milliseconds of its parts are left in the members below. **Collective.**
  void run();
  double attack_ms = 0, train_ms = 0, reduce_ms = 0, update_ms = 0;
  [[nodiscard]] double step_ms() const { return attack_ms + train_ms + reduce_ms + update_ms; }

  /// Makes one iteration of the attack on the images that are loaded: gradient and update.
  void attack_iteration();

  struct Losses {
    double clean, attacked, trained;
  };
  /// Error(numerical) unless the attack, where there is one, raises the loss and a step leaves finite numbers: no
  /// timing of wrong work. The first call warms up, too. **Collective.**
  Losses check();

  /// What the same network computes elsewhere, for a comparison: after three passes in training mode, so that running
  /// statistics matter, logits [batch, 10] and input gradient [batch, 3, size, size] of the sum of the losses at the
  /// clean images, and the mean loss before and after an attack that starts at them.
  struct Results {
    std::vector<float> logits, input_gradient;
    double clean_loss, attacked_loss;
  };
  [[nodiscard]] Results results();

  /// What was measured, for a line of JSON.
  [[nodiscard]] nlohmann::ordered_json about();

  [[nodiscard]] const StepOptions& options() const { return options_; }
  [[nodiscard]] Trainer& trainer() { return trainer_; }
  [[nodiscard]] Backend& backend() { return trainer_.replica().backend(); }
  [[nodiscard]] const Graph& graph() const { return trainer_.model().graph; }

 private:
  /// Loads the first images of the set, as many as a micro-batch has.
  void load();
  /// Mean of the attacked network's loss on what is loaded, at the clean images or after an attack from `start`; null:
  /// a random start.
  [[nodiscard]] double loss(bool attacked, const float* start);

  StepOptions options_;
  Trainer trainer_;
  HostBatch batch_;
  float *losses_, *correct_, *zeros_;
};

}  // namespace dat
