#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// SiLU in training: keeps its slope, and not x, or makes the slope again with the result: the gradient is a product
/// then. In the frozen program a SiLU is an affine map: batch_norm.cpp.
class TrainingSilu final : public TrainingOperation {
 public:
  TrainingSilu(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        type_(lowering.type(input())),
        layout_(lowering.layout(first)),
        elements_(lowering.elements(first)),
        x_(lowering.read(input())),
        y_(lowering.make(first, type_)),
        slope_(lowering.fresh(elements_, type_)) {
    lowering.drop(*this, {input()});
  }

  void plan_backward(TrainingLowering& lowering) override {
    if (lowering.dropped(result_)) static_cast<void>(lowering.again(result_));
    lowering.touch(back_slope_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    dy_ = dy.buffer;
    dx_ = dy.owned ? dy_ : lowering.fresh(elements_, type_);
    lowering.contribute(input(), dx_);
  }

  void plan_again(TrainingLowering& lowering, Buffer into) override {
    again_ = into;
    again_x_ = lowering.source(input());
    back_slope_ = lowering.fresh(elements_, type_);
  }

  void make_again() override { silu(again_x_, again_, back_slope_); }
  void forward(const float*) override { silu(x_, y_, slope_); }

  void backward(const WantedGradients&) override {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements_),
           kernels::AffineSiluGradient<T>{at<T>(dy_), nullptr, nullptr, at<T>(back_slope_), at<T>(dx_), layout_,
                                          elements_, false});
    });
  }

 private:
  void silu(Buffer x, Buffer y, Buffer slope) const {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements_),
           kernels::AffineSilu<T>{at<T>(x), nullptr, nullptr, at<T>(y), at<T>(slope), layout_, elements_});
    });
  }

  const DType type_;
  const Layout layout_;
  const std::int64_t elements_;
  const Buffer x_, y_, slope_;
  Buffer back_slope_ = slope_;
  Buffer dy_ = -1, dx_ = -1, again_ = -1, again_x_ = -1;
};

}  // namespace

const NodeOperations silu_operations = {frozen_affine, make_training<TrainingSilu>};

}  // namespace dat
