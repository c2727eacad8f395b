#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "network/lowering.hpp"

namespace dat {

/// A graph on its way to a training program.
class TrainingLowering : public Lowering {
 public:
  /// The arrays that operations share, on the device.
  struct Arrays {
    float *logits, *dlogits;               ///< [n, classes]
    float *mean, *variance;                ///< [graph.statistics] of the batch
    float* norm_gradients;                 ///< dgamma, dbeta of one batch norm at a time
    const float* scale;                    ///< [2] see TrainingProgram; null: none
    const float *norm_scale, *norm_shift;  ///< [channels] of batch norms that may be frozen: y = scale*x + shift
    /// What gradients by parameters and images are multiplied by; null: nothing.
    [[nodiscard]] const float* unscale() const { return scale != nullptr ? scale + 1 : nullptr; }
  };
  TrainingLowering(Model& of, const Graph& described, int samples, Planner& buffers, DType type, const Arrays& all)
      : Lowering(of, described, samples, buffers),
        storage(type),
        arrays(all),
        border(of.freezing.always ? first_trained(described, of.freezing.segments) : 0),
        gradients_(described.nodes.size()) {}

  /// Type of activations and their gradients up to the pool; after the pool they are few, and f32.
  const DType storage;
  const Arrays arrays;
  /// The first value whose gradient may be wanted: what makes those before it stands still in all steps.
  const int border;

  /// The gradient of a value, whose readers are planned from the last to the first. An owned gradient may be
  /// overwritten; one that is not owned shares its buffer with others.
  struct Gradient {
    Buffer buffer = -1;
    bool owned = false;
  };
  /// The gradient of an operation's result, for that operation.
  [[nodiscard]] Gradient arriving(int result);
  /// An operation adds this part to the gradient of a value that it reads.
  void contribute(int value, Buffer part, bool owned);
  /// The other way to contribute: takes over what other readers have contributed (-1: nothing). The operation adds it
  /// to its own part, and contributes the sum.
  [[nodiscard]] Buffer take_part(int value);

  /// A part of a gradient that meets the part of another reader; the program adds the two after the operation has run.
  struct Sum {
    Buffer a, b, into;
    std::int64_t elements;
    int value;
    DType type;
  };
  [[nodiscard]] std::vector<Sum> take_sums() { return std::exchange(sums_, {}); }
  /// What other readers have contributed, where the operation may add its own part in place, and contributes the sum;
  /// else -1.
  [[nodiscard]] Buffer take_owned(int value);

  /// An addition on the way forth.
  struct Addition {
    Buffer a = -1, b = -1;
  };
  /// Whether the operation that comes next, a batch norm, makes this addition, whose result is `value`: then it takes
  /// it. Called when all that the addition reads has been read, as what is next is what nobody has taken.
  [[nodiscard]] bool leave(const Addition& addition, int value);
  [[nodiscard]] std::optional<Addition> take_addition(int value);

 private:
  /// The first node with a parameter that is none of the first `segments`.
  [[nodiscard]] static int first_trained(const Graph& graph, int segments);

  std::vector<Gradient> gradients_;
  std::vector<Sum> sums_;
  std::optional<Addition> left_;
  int left_value_ = -1;
};

/// What a backward pass wants of one operation.
struct WantedGradients {
  const float* image = nullptr;           ///< what the forward pass read
  float* image_gradient = nullptr;        ///< where dx goes of the convolution that reads the images
  bool dx = false;                        ///< the gradient of what the operation reads
  float *dw = nullptr, *dbias = nullptr;  ///< where the gradients of its parameters go; null: not wanted
  bool accumulate = false;                ///< dw and dbias are added to what is there
};

/// One operation of a training program. Its constructor takes its nodes and plans the way forth.
class TrainingOperation : public Operation {
 public:
  virtual void plan_backward(TrainingLowering& lowering) = 0;
  /// Adds what is to be loaded whenever the model's weights have changed.
  virtual void load(std::vector<Backend::Load>&) {}
  /// Queues the way forth. The images concern the convolution that reads them.
  virtual void forward(const float* image) = 0;
  /// Queues the gradient of what the operation reads, where it, or what backward_weights() makes of it, is wanted.
  /// Where not weights_first(), the gradients of the parameters, too, where `wanted` says where they go: then
  /// backward_weights() must not be called.
  virtual void backward(const WantedGradients& wanted) = 0;
  /// Queues the gradients of the operation's parameters. Called where one of them is wanted: before backward(), or,
  /// where not weights_first(), after a backward() that was not told where they go.
  virtual void backward_weights(const WantedGradients&) {}
  [[nodiscard]] virtual bool weights_first() const { return true; }

 protected:
  using Operation::Operation;
};

/// The operation that begins with this node.
[[nodiscard]] std::unique_ptr<TrainingOperation> training_operation(TrainingLowering& lowering, int node);
/// The operations of each kind of node, in nodes/.
[[nodiscard]] std::unique_ptr<TrainingOperation> training_normalize(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_convolution(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_batch_norm(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_relu(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_silu(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_add(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_max_pool(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_pool(TrainingLowering& lowering, int node);
[[nodiscard]] std::unique_ptr<TrainingOperation> training_linear(TrainingLowering& lowering, int node);

}  // namespace dat
