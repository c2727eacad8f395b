#include "network/training_lowering.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// A ReLU that no other operation has taken. In the frozen program it is an affine map: batch_norm.cpp.
class TrainingRelu final : public TrainingOperation {
 public:
  TrainingRelu(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        x_(lowering.read(input())),
        y_(lowering.make(result_)),
        elements_(lowering.elements(result_)) {}

  void plan_backward(TrainingLowering& lowering) override {
    lowering.touch(y_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    dy_ = dy.buffer;
    dx_ = dy.owned ? dy_ : lowering.fresh(elements_);
    lowering.contribute(input(), dx_, true);
  }

  void forward(const float*) override {
    each(device(), kernels::groups(elements_), kernels::Add<float>{at(x_), nullptr, at(y_), elements_, true});
  }

  void backward(const WantedGradients& wanted) override {
    if (wanted.dx)
      each(device(), kernels::groups(elements_), kernels::ReluGradient{at(y_), at(dy_), at(dx_), elements_});
  }

 private:
  const Buffer x_, y_;
  const std::int64_t elements_;
  Buffer dy_ = -1, dx_ = -1;
};

}  // namespace

std::unique_ptr<TrainingOperation> training_relu(TrainingLowering& lowering, int node) {
  return std::make_unique<TrainingRelu>(lowering, node);
}

}  // namespace dat
