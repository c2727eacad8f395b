#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dat/network.hpp"
#include "dat/planner.hpp"

namespace dat {

/// The network as the attack and the evaluation see it: constants. Batch norm with running statistics is folded into
/// the convolutions, ReLU and residual additions are fused into them, only the ReLU masks are kept for the way back,
/// and the only gradient is that of the input. Samples do not influence each other.
class FrozenProgram {
 public:
  /// For n samples at a time, with activations and weights kept as `storage`. Asks the backend for workspace: call
  /// backend.commit_workspace() before the first run. Error(usage): the backend refuses that storage.
  FrozenProgram(Model& model, int n, DType storage = DType::f32);
  /// One program for each of these numbers of samples. Their packed weights lie side by side and take one turn
  /// together: each program packs once after the model has changed, however they alternate. Memory: packed weights of
  /// all of them, workspace of the largest.
  [[nodiscard]] static std::vector<std::unique_ptr<FrozenProgram>> of_sizes(Model& model, const std::vector<int>& sizes,
                                                                            DType storage = DType::f32);
  ~FrozenProgram();

  /// Folds and packs the weights if the model has changed since the last time, or another program has used their place.
  /// forward() does so by itself; work that is recorded must not contain it.
  void refresh();
  /// logits() of x [n] images (image layout).
  void forward(const float* x);
  /// dx [n] images from dlogits(), of the last forward call, then PGD's step on them where `update` has one, with which
  /// dx may be left as it was.
  void backward(float* dx, const PgdUpdate& update = {});
  /// What dlogits should be multiplied by: a power of two that keeps f16 gradients away from zero.
  [[nodiscard]] float gradient_scale() const { return storage_ == DType::f16 ? 1024.0F : 1.0F; }

  [[nodiscard]] int n() const { return n_; }
  [[nodiscard]] float* logits() const { return logits_; }    ///< [n, classes]
  [[nodiscard]] float* dlogits() const { return dlogits_; }  ///< [n, classes]
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] std::vector<std::string> implementations() const;  ///< one line per convolution

 private:
  struct Step;
  /// Of the programs whose packed weights lie side by side: how often others have used that place.
  struct Turn {
    std::uint64_t number = 0;
  };
  FrozenProgram(Model& model, int n, DType storage, std::shared_ptr<Turn> turn);
  void lower();
  template <class T>
  [[nodiscard]] T* at(Planner::Buffer buffer) const;
  template <class T>
  void forward_in(const float* x);
  template <class T>
  void backward_in(float* dx, const PgdUpdate& update);

  Model& model_;
  int n_;
  DType storage_;
  std::vector<Step> steps_;
  Planner planner_;
  std::size_t workspace_bytes_ = 0;
  float *logits_ = nullptr, *dlogits_ = nullptr, *scale_ = nullptr, *shift_ = nullptr;
  std::shared_ptr<Turn> turn_;
  std::uint64_t version_ = 0, packed_in_ = 0;  ///< of the model, and the turn, when the weights were packed
};

/// f32, f16 or bf16 by name. Error(usage).
[[nodiscard]] DType storage_from(const std::string& name);

/// What a backward pass of the training program shall compute.
struct GradientRequest {
  const ActiveSet* weights = nullptr;  ///< weight gradients of the active layers; null: none
  bool accumulate = false;             ///< add to parameters.gradients instead of overwriting
  float* input = nullptr;              ///< where the input gradient goes [n] images; null: not wanted
  /// Called when the gradient of a segment is complete, last layer first; may be empty.
  const std::function<void(int segment)>* ready = nullptr;
};

/// The network as it learns: batch norm with the statistics of these n samples, activations kept, weight gradients.
/// The backward pass computes what is asked for and stops below the lowest active layer.
class TrainingProgram {
 public:
  TrainingProgram(Model& model, int n);
  ~TrainingProgram();

  void refresh();  ///< as FrozenProgram's
  /// logits() of x [n] images; x must stay until backward.
  void forward(const float* x);
  void backward(const float* x, const GradientRequest& request);

  [[nodiscard]] int n() const { return n_; }
  [[nodiscard]] float* logits() const { return logits_; }
  [[nodiscard]] float* dlogits() const { return dlogits_; }
  /// Of the last forward call, [graph.statistics]: the variance is biased.
  [[nodiscard]] const float* batch_mean() const { return mean_; }
  [[nodiscard]] const float* batch_variance() const { return variance_; }
  /// The same for the running statistics, [2*graph.statistics]: means, then unbiased variances.
  [[nodiscard]] const float* statistics() const { return mean_; }
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  struct Step;
  void lower();
  [[nodiscard]] float* at(Planner::Buffer buffer) const;

  Model& model_;
  int n_;
  std::vector<Step> steps_;
  Planner planner_;
  std::size_t workspace_bytes_ = 0;
  float *logits_ = nullptr, *dlogits_ = nullptr, *dgamma_ = nullptr;
  float *mean_ = nullptr, *unbiased_variance_ = nullptr, *variance_ = nullptr;  ///< one block, in this order
  float* factors_ = nullptr;  ///< m/(m - 1), m values per channel: biased to unbiased
  std::uint64_t version_ = 0;
};

}  // namespace dat
