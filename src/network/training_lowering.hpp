#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "network/lowering.hpp"

namespace dat {

class TrainingOperation;

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
    /// Factor of gradients by parameters and images; null: 1.
    [[nodiscard]] const float* unscale() const { return scale != nullptr ? scale + 1 : nullptr; }
  };
  /// makes_again: see TrainingProgram.
  TrainingLowering(Model& of, const Graph& described, int samples, Planner& buffers, DType type, const Arrays& all,
                   bool makes_again)
      : Lowering(of, described, samples, buffers),
        storage(type),
        arrays(all),
        border(of.freezing.always ? first_trained(described, of.freezing.segments) : 0),
        makes_again_(makes_again),
        gradients_(described.nodes.size()),
        dropped_(described.nodes.size()) {}

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
  /// An operation adds this part, a buffer that it has touched, to the gradient of a value that it reads.
  void contribute(int value, Buffer part, bool owned = true);
  /// The other way to contribute: takes over what other readers have contributed (-1: nothing). The operation adds it
  /// to its own part, and contributes the sum.
  [[nodiscard]] Buffer take_part(int value);

  /// A part of a gradient that meets the part of another reader; the program adds the two after the operation has run.
  struct Sum {
    Buffer a, b, into;
    std::int64_t elements;
    DType type;
  };
  [[nodiscard]] std::vector<Sum> take_sums() { return std::exchange(sums_, {}); }
  /// Contributions of other readers, where the operation may add its own part in place, and contributes the sum; else
  /// -1.
  [[nodiscard]] Buffer take_owned(int value);

  /// An addition in the forward pass.
  struct Addition {
    Buffer a = -1, b = -1;
  };
  /// Returns whether the operation that comes next, a batch norm, makes this addition, whose result is `value`: then it
  /// takes it. Called when all that the addition reads has been read, as what is next is what nobody has taken.
  [[nodiscard]] bool leave(const Addition& addition, int value);
  [[nodiscard]] std::optional<Addition> take_addition(int value);

  /// An operation that can make its result again, from these values (-1: none), says so when it is made. Returns
  /// whether the result is dropped, so that the operation makes it again where the backward pass asks for it. It is not
  /// where the program keeps all, and where too long a chain of dropped values would have to be made first.
  bool drop(TrainingOperation& by, std::initializer_list<int> sources);
  [[nodiscard]] bool dropped(int value) const { return dropped_[static_cast<std::size_t>(value)].by != nullptr; }
  /// A value for the backward pass: its buffer there, which is alive at this instruction. A dropped value is made
  /// before the first step that asks for it.
  ///
  /// @param segment  The parameter whose gradient is made of it; -1: other gradients are, too.
  [[nodiscard]] Buffer again(int value, int segment = -1);
  /// A value that an operation makes its own result from, once more.
  [[nodiscard]] Buffer source(int value);

  /// A dropped value that is made again before a step.
  struct Again {
    TrainingOperation* operation;
    std::vector<int> segments;  ///< parameters whose gradients want it; -1: it is always wanted
  };
  /// Recomputations to be made before the step that has been planned, in this order. Later steps may add segments.
  [[nodiscard]] std::vector<std::shared_ptr<const Again>> take_again() { return std::exchange(again_, {}); }

 private:
  /// The first node with a parameter that is none of the first `segments`.
  [[nodiscard]] static int first_trained(const Graph& graph, int segments);

  /// Chains of dropped values grow to this length. The values of a longer one, which are alive together, save less.
  static constexpr int kLongestChain = 4;
  struct Dropped {
    TrainingOperation* by = nullptr;  ///< null: it is kept
    std::vector<int> sources{};
    int chain = 0;  ///< dropped values from the last kept one on
    Buffer buffer = -1;
    std::shared_ptr<Again> again{};
  };
  void want(int value, int segment);

  const bool makes_again_;
  std::vector<Gradient> gradients_;
  std::vector<Dropped> dropped_;
  std::vector<std::shared_ptr<const Again>> again_;
  std::vector<Sum> sums_;
  std::optional<Addition> left_;
  int left_value_ = -1;
};

/// Gradients that a backward pass needs of one operation.
struct WantedGradients {
  const float* image = nullptr;           ///< input of the forward pass
  float* image_gradient = nullptr;        ///< destination of dx for the convolution that reads the images
  bool dx = false;                        ///< the gradient of what the operation reads
  float *dw = nullptr, *dbias = nullptr;  ///< destinations of the gradients of its parameters; null: not wanted
  bool accumulate = false;                ///< dw and dbias are added to what is there
};

/// One operation of a training program. Its constructor takes its nodes and plans the forward pass.
class TrainingOperation : public Operation {
 public:
  virtual void plan_backward(TrainingLowering& lowering) = 0;
  /// Plans how a dropped result is made again, into this buffer, and queues it.
  virtual void plan_again(TrainingLowering&, Buffer /*into*/) {}
  virtual void make_again() {}
  /// Adds what is to be loaded whenever the model's weights have changed.
  virtual void load(std::vector<Backend::Load>&) {}
  /// Queues the forward pass. The images concern the convolution that reads them.
  virtual void forward(const float* image) = 0;
  /// Queues the gradient of what the operation reads, at least where it, or what backward_weights() makes of it, is
  /// wanted. Where not weights_first(), the gradients of the parameters, too, where `wanted` says where they go: then
  /// backward_weights() must not be called.
  virtual void backward(const WantedGradients& wanted) = 0;
  /// Queues the gradients of the operation's parameters. Called where one of them is wanted: before backward(), or,
  /// where not weights_first(), after a backward() that did not receive their destinations.
  virtual void backward_weights(const WantedGradients&) {}
  [[nodiscard]] virtual bool weights_first() const { return true; }

 protected:
  using Operation::Operation;
};

}  // namespace dat
