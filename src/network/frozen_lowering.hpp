#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "network/lowering.hpp"

namespace dat {

/// A batch norm with running statistics, as scale*x + shift, which the program keeps (FrozenProgram::refresh).
struct FoldedNorm {
  const float *scale = nullptr, *shift = nullptr;  ///< [channels]; null: no norm
};

/// A graph on its way to a frozen program.
///
/// The gradient of a value is planned while its readers are planned, from the last to the first. The parts of a
/// gradient are not added at once, since most operations can add them on the way: a gradient is `main`, zero where
/// `mask` is not open, plus `extra`.
class FrozenLowering : public Lowering {
 public:
  /// The arrays that operations share, on the device.
  struct Arrays {
    float *scale, *shift;     ///< [graph.statistics] batch norms as scale*x + shift
    float *logits, *dlogits;  ///< [n, classes]
  };
  FrozenLowering(Model& of, const Graph& described, int samples, Planner& buffers, DType type, const Arrays& all)
      : Lowering(of, described, samples, buffers),
        storage(type),
        arrays(all),
        gradients_(described.nodes.size()),
        activations_(described.nodes.size()) {}

  /// Type of activations and their gradients up to the pool; after the pool they are few, and f32.
  const DType storage;
  const Arrays arrays;

  [[nodiscard]] FoldedNorm folded_norm(int batch_norm) const;

  struct Gradient {
    Buffer main = -1, extra = -1, mask = -1;  ///< -1: the gradient has no such part
    bool through_relu = false;                ///< the gradient is taken at what the result was before its ReLU
    std::int64_t elements = 0;                ///< of all samples, of an operation's result; of this type
    DType type = DType::f32;
  };
  /// The gradient of an operation's result, for that operation. A mask is applied before the operation runs, so that
  /// none is left.
  [[nodiscard]] Gradient arriving(int result);
  [[nodiscard]] bool has_gradient(int value) const { return at(value).main != -1; }
  /// An operation adds this part to the gradient of a value that it reads. A mask, which only the first part may have,
  /// is left to the operation that needs the gradient next.
  void contribute(int value, Buffer part, Buffer mask = -1);
  /// The other way to contribute: the operation itself adds to the first part of the gradient, in the buffer that is
  /// returned. The mask is applied before the operation runs, or goes to `mask` where the operation applies it itself.
  [[nodiscard]] Buffer add_to(int value, Buffer* mask = nullptr);

  /// A way round mask bits: the ReLU's own output says where it was open. A convolution that makes a value with a ReLU
  /// at its end says so (made_by_relu). The first convolution that reads the value is the last to add to its gradient,
  /// and may take the gradient through that ReLU; then the value must be kept until the gradient is there (keep).
  void made_by_relu(int value) { activation(value).by_relu = true; }
  [[nodiscard]] bool may_go_through_relu(int value, int reader) const {
    return activation(value).by_relu && readers(value).front() == reader;
  }
  void keep(int value) { activation(value).kept = true; }
  [[nodiscard]] bool kept(int value) const { return activation(value).kept; }
  /// Returns whether the value's gradient lacks the part of one reader only, and the rest lies in one buffer.
  [[nodiscard]] bool one_part_missing(int value) const;
  /// The reader whose part is missing makes the whole gradient, in `whole`, from its own part and the buffer that is
  /// returned (-1: there is no other part).
  [[nodiscard]] Buffer go_through_relu(int value, Buffer whole);

  /// A batch norm with its ReLU that the operation after it, the only one that reads `value`, applies while it reads.
  struct Norm {
    Buffer x = -1, bits = -1;
    const float *scale = nullptr, *shift = nullptr;
  };
  /// Leaves the batch norm to the operation after it; the value then has no buffer of its own. false: that operation
  /// cannot apply it, or is not the next one.
  [[nodiscard]] bool leave_norm(int value, const Norm& norm);
  /// Norm that has been left to the operation that reads `value`; empty: none.
  [[nodiscard]] std::optional<Norm> take_norm(int value);

  /// Mask that the program makes for the operation that plans the backward pass.
  struct Masking {
    Buffer gradient, mask;
    std::int64_t elements;
    DType type;
  };
  struct Sum {
    Buffer into, from;
    std::int64_t elements;
    DType type;
  };
  struct Upkeep {
    std::vector<Masking> before;  ///< masks that other operations left to this one
    std::vector<Sum> after;       ///< third parts of gradients
  };
  [[nodiscard]] Upkeep take_upkeep() { return std::exchange(upkeep_, {}); }

 private:
  struct Activation {
    bool by_relu = false, kept = false;
    std::size_t parts = 0;  ///< parts of its gradient, so far
  };

  void mask_first(int value);
  [[nodiscard]] Activation& activation(int value) { return activations_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] const Activation& activation(int value) const { return activations_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] Gradient& at(int value) { return gradients_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] const Gradient& at(int value) const { return gradients_[static_cast<std::size_t>(value)]; }

  std::pair<int, Norm> norm_{-1, {}};  ///< the last norm that was left, with its value
  std::vector<Gradient> gradients_;
  std::vector<Activation> activations_;
  Upkeep upkeep_;
};

/// kernels::Add of this type. b may be null: y = a, then.
void add(const Device& device, DType type, const void* a, const void* b, void* y, std::int64_t elements,
         bool relu = false, std::uint16_t* bits = nullptr);
/// Sets gradient to gradient + extra where the bits are open, elsewhere to 0. extra may be null.
void mask(const Device& device, DType type, void* gradient, const void* extra, const std::uint16_t* bits,
          std::int64_t elements);

/// One fused operation of a frozen program. Its constructor takes its nodes and plans the forward pass.
class FrozenOperation : public Operation {
 public:
  virtual void plan_backward(FrozenLowering& lowering) = 0;
  /// Limits the results to the first `samples` samples from now on; the others may be left out.
  virtual void want(int samples) { wanted_ = samples; }
  /// Number of elements of a value that belong to the samples that are asked for, where all samples have `elements`.
  [[nodiscard]] std::int64_t wanted(std::int64_t elements) const { return elements / n_ * wanted_; }
  /// Adds what is to be loaded whenever the model's weights or running statistics have changed.
  virtual void load(std::vector<Backend::Load>&) {}
  /// Queue the work of either way. Images and their gradient concern the convolution that reads the images.
  virtual void forward(const float* image) = 0;
  virtual void backward(float* image_gradient, const PgdUpdate& update) = 0;
  /// A convolution's name, and the library's code for it, for reports; empty: nothing to report.
  [[nodiscard]] virtual std::string implementation() const { return {}; }

 protected:
  using Gradient = FrozenLowering::Gradient;
  FrozenOperation(const Lowering& lowering, int node) : Operation(lowering, node), wanted_(lowering.n) {}
  /// Makes the whole gradient of the result in its main part: adds the extra part, and sets what is not open in `bits`
  /// to zero. Extra part and bits may be -1, which is none.
  void gather(const Gradient& dy, Buffer bits = -1) const;

 private:
  int wanted_;
};

}  // namespace dat
