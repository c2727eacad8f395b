#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batch/buffers/buffers.hpp"
#include "dat/reducer.hpp"
#include "train/examples/example_source.hpp"
#include "train/layers/sampling.hpp"
#include "train/learner/learner.hpp"
#include "train/plan/step_method.hpp"

namespace dat {

/// Copies of the micro-batches of a rank's part of a step, in memory of their own: images, labels, numbers. All other
/// arrays are those of the last micro-batch.
class KeptBatches {
 public:
  /// Makes room for `count` micro-batches of at most `images` images.
  KeptBatches(const Buffers& buffers, int count, int images);

  void clear() {
    all_.clear();
    floats_ = 0;
  }
  /// Copies one more. Queued.
  void keep(const Batch& batch);
  [[nodiscard]] std::span<const Batch> all() const { return all_; }

 private:
  float *clean_, *x_adv_;     ///< each image array begins at whole groups, as kernels expect it of images
  std::int32_t* labels_;      ///< [count * images]
  std::int64_t* sample_ids_;  ///< [count * images]
  std::vector<Batch> all_;
  std::int64_t floats_ = 0;  ///< floats of the images kept so far
};

/// Adversarial weight perturbation (Wu, Xia, Wang, "Adversarial Weight Perturbation Helps Robust Generalization",
/// NeurIPS 2020; repository csdongxian/AWP, utils_awp.py): a step's gradient is taken, and the optimizer moves, not at
/// the weights w but where the loss of the step is higher, at w + gamma ||w|| g / ||g|| in each tensor of more than one
/// dimension, g being the gradient at w. It wraps the source of a step's examples: begin() has all of them attacked at
/// w and keeps them, computes g (whose batch statistics nobody sees), and moves the weights; after the last of the
/// examples they are w again, bit for bit, whatever becomes of the step.
///
/// Layers that the step does not train have no g, and stay. Memory: two flat blocks, and the images of a rank's part of
/// a step. Takes a training pass more in each step, and where the ranks share g, one more reduction.
class WeightPerturbation final : public WrappedExamples {
 public:
  /// gradients: a flat block [parameters.size] on the device. reducer: makes the mean over the ranks in it; null: each
  /// rank has its own g, and the optimizer, which must do the same on all ranks, finds w. order: of the units of work;
  /// null: none. The reference arguments must outlive it.
  WeightPerturbation(Communicator& ranks, const TrainOptions& options, const Plan& plan, const StepMethod& method,
                     Replica& replica, std::unique_ptr<ExampleSource> source, const LayerSampling& layers,
                     float* gradients, std::unique_ptr<Reducer> reducer, const SummationTree* order, PhaseTimer& timer);

  /// **Collective**, where the ranks share g.
  void begin(std::int64_t step) override;
  const Batch* next() override;
  [[nodiscard]] std::int64_t bytes_sent() const override;

  /// Perturbs the weights once more, until the next call, where the optimizer is to find them so; what it has changed
  /// is then done to w.
  void enter() {
    if (at_perturbed()) move_to(gradients_);
  }
  void leave();

 private:
  void perturb(std::int64_t step);
  void move_to(const float* weights);
  [[nodiscard]] bool in_force() const { return gamma_ > 0; }
  [[nodiscard]] bool at_perturbed() const { return in_force() && reducer_ != nullptr; }

  Plan plan_;
  Replica& replica_;
  const LayerSampling& layers_;
  ByEpoch<double> of_epoch_;
  double gamma_ = 0;  ///< gamma of the step
  std::unique_ptr<Reducer> reducer_;
  BatchStatistics statistics_;  ///< statistics that nobody reads
  Learner learner_;
  ChunkTable table_;
  Chunks chunks_;                      ///< chunks of the step's layers
  std::uint8_t* perturbed_ = nullptr;  ///< [segments] 1: of more than one dimension
  float* factors_ = nullptr;           ///< [segments] on the device
  double *partial_ = nullptr, *sums_ = nullptr;
  float *gradients_, *weights_;  ///< [parameters.size]: g, then the perturbed weights; w
  KeptBatches kept_;             ///< all of the step's examples
  std::size_t given_ = 0;        ///< number of examples of kept_ that have been given
};

}  // namespace dat
