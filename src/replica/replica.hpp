#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "batch/buffers/buffers.hpp"
#include "batch/view/frozen.hpp"
#include "batch/view/programs.hpp"
#include "dat/network.hpp"
#include "dat/program.hpp"
#include "replica/cores.hpp"

namespace dat {

struct ReplicaOptions {
  BackendOptions backend;
  std::string network;
  int width = 64;
  std::string activation = "relu";  ///< activation_from(), or auto: the network's own
  std::string normalize = "none";   ///< normalization_from()
  Granularity granularity = Granularity::tensor;
  DatasetInfo images;                   ///< size, channels and classes of the images that the network is for
  std::vector<int> smaller{};           ///< other sizes, below that, of images that are trained on
  int micro_batch = 1;                  ///< most images at a time
  int attack_batch = 0;                 ///< images in a pass of the attack; 0: micro_batch
  DType attack_storage = DType::f32;    ///< type of the network's activations while it is attacked; evaluation is f32
  DType training_storage = DType::f32;  ///< also in training passes, those of attacks on batch statistics included
  bool recompute = false;               ///< training passes make results of batch norms again (TrainingProgram)
  bool trains_on_whole = true;          ///< training passes see images of the dataset's size, too
  Needs needs{};                        ///< needs of attacks and losses
  std::vector<int> training_batches;    ///< numbers of images of the training passes; empty: the network is not trained
  double noise = 0;                     ///< standard deviation of the noise that attacks and evaluations see; 0: none
  int noise_samples = 1;                ///< copies of each image under noise
  bool evaluations = true;              ///< evaluated() is asked for
  Freezing freezing{};                  ///< segments that a training leaves as they are
};

/// The network for images of this height = width.
[[nodiscard]] Graph graph_of(const ReplicaOptions& options, int size);

/// One rank's copy of the network: the device, the weights there, the programs that this rank runs, and the images that
/// they run on. Training, evaluation and measurement build it here. Where images of several sizes are trained on, there
/// are programs for each; they share the workspace, and what is trained follows the size of the images at hand.
class Replica final : public Programs {
 public:
  /// Plans everything; weights are zero. commit() comes before the first run. Error(device), Error(usage).
  explicit Replica(const ReplicaOptions& options);

  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] const Model& model() const override { return model_; }
  [[nodiscard]] Buffers& images() { return images_; }
  [[nodiscard]] int classes() const { return images_.classes; }

  [[nodiscard]] FrozenView& attacked() override { return *at_hand().attacked; }
  /// View of an evaluation's attack, of the dataset's size; also of the training's where both are f32.
  [[nodiscard]] FrozenView& evaluated() { return evaluated_ ? *evaluated_ : *sizes_.front()->attacked; }
  /// The training program for n images of the size at hand, n being one of options.training_batches, or of these times
  /// the copies under noise.
  [[nodiscard]] TrainingProgram& training(int n) override { return *at_hand().training.at(n); }
  /// Sets the factor by which training passes multiply gradients on the way (TrainingProgram): queued, with f16 only,
  /// where it comes before the first pass.
  void set_gradient_scale(float scale);
  /// Number of copies of each image that training passes see where there is noise; else 1.
  [[nodiscard]] int copies() const { return images_.copies(); }

  /// Multiply-adds of one forward pass of an image of this size.
  [[nodiscard]] double macs(int size) const;
  /// Floats of an image, of each size that there are programs for.
  [[nodiscard]] std::vector<std::int64_t> image_floats() const;
  /// Numbers of images that the attack's programs take at a time.
  [[nodiscard]] std::vector<int> attack_sizes() const;
  /// The attack's first program, for measurements.
  [[nodiscard]] FrozenProgram& frozen() { return *sizes_.front()->frozen.front(); }
  [[nodiscard]] std::vector<std::string> implementations() const {
    return sizes_.front()->frozen.front()->implementations();
  }

  /// Takes the memory when all parts that use this device have been built.
  void commit() { backend_->commit_workspace(); }

 private:
  /// The programs for images of one size.
  struct OfSize {
    int size;
    Graph graph;  ///< empty: it is the model's
    std::vector<std::unique_ptr<FrozenProgram>>
        frozen;  ///< programs for one number of images; several for the early stop
    std::map<int, std::unique_ptr<TrainingProgram>> training;
    std::unique_ptr<FrozenView> attacked;
  };
  void plan(const ReplicaOptions& options, int size);
  /// An attack's view of the network by this program.
  [[nodiscard]] std::unique_ptr<FrozenView> objective(FrozenProgram& program);
  [[nodiscard]] OfSize& at_hand();

  std::unique_ptr<Backend> backend_;
  std::function<Graph(int)> graph_of_size_;
  float* gradient_scale_ = nullptr;  ///< [2] for training programs in f16: the scale, and its inverse
  Model model_;
  Buffers images_;
  std::vector<std::unique_ptr<OfSize>> sizes_;  ///< the dataset's size first
  std::unique_ptr<FrozenProgram> frozen_f32_;   ///< null where the attack's programs are f32 already
  std::unique_ptr<FrozenView> evaluated_;
};

}  // namespace dat
