#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// A ReLU that no other operation has taken. In the frozen program it is an affine map: batch_norm.cpp.
class TrainingRelu final : public TrainingOperation {
 public:
  TrainingRelu(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        type_(lowering.type(input())),
        x_(lowering.read(input())),
        y_(lowering.make(result_, type_)),
        elements_(lowering.elements(result_)) {
    if (lowering.dropped(input())) lowering.drop(*this, {input()});
  }

  void plan_backward(TrainingLowering& lowering) override {
    back_y_ = lowering.again(result_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    dy_ = dy.buffer;
    dx_ = dy.owned ? dy_ : lowering.fresh(elements_, type_);
    lowering.contribute(input(), dx_);
  }

  void plan_again(TrainingLowering& lowering, Buffer into) override {
    again_ = into;
    again_x_ = lowering.source(input());
  }

  void make_again() override { relu(again_x_, again_); }
  void forward(const float*) override { relu(x_, y_); }

  void backward(const WantedGradients&) override {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements_),
           kernels::ReluGradient<T>{at<T>(back_y_), at<T>(dy_), at<T>(dx_), elements_});
    });
  }

 private:
  void relu(Buffer from, Buffer to) const {
    add(device(), type_, at<void>(from), nullptr, at<void>(to), elements_, true);
  }

  const DType type_;
  const Buffer x_, y_;
  const std::int64_t elements_;
  Buffer dy_ = -1, dx_ = -1, back_y_ = -1, again_ = -1, again_x_ = -1;
};

}  // namespace

const NodeOperations relu_operations = {frozen_affine, make_training<TrainingRelu>};

}  // namespace dat
