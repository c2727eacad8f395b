#include "network/training_lowering.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// It keeps its slope, and not x: the gradient is a product then. In the frozen program a SiLU is an affine map:
/// batch_norm.cpp.
class TrainingSilu final : public TrainingOperation {
 public:
  TrainingSilu(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        layout_(lowering.layout(first)),
        elements_(lowering.elements(first)),
        x_(lowering.read(input())),
        y_(lowering.make(first)),
        slope_(lowering.fresh(elements_)) {}

  void plan_backward(TrainingLowering& lowering) override {
    lowering.touch(slope_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    dy_ = dy.buffer;
    dx_ = dy.owned ? dy_ : lowering.fresh(elements_);
    lowering.contribute(input(), dx_, true);
  }

  void forward(const float*) override {
    each(device(), kernels::groups(elements_),
         kernels::AffineSilu<float>{at(x_), nullptr, nullptr, at(y_), at(slope_), layout_, elements_});
  }

  void backward(const WantedGradients& wanted) override {
    if (wanted.dx)
      each(device(), kernels::groups(elements_),
           kernels::AffineSiluGradient<float>{at(dy_), nullptr, nullptr, at(slope_), at(dx_), layout_, elements_,
                                              false});
  }

 private:
  const Layout layout_;
  const std::int64_t elements_;
  const Buffer x_, y_, slope_;
  Buffer dy_ = -1, dx_ = -1;
};

}  // namespace

std::unique_ptr<TrainingOperation> training_silu(TrainingLowering& lowering, int node) {
  return std::make_unique<TrainingSilu>(lowering, node);
}

}  // namespace dat
