#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// y = relu(a + b): an addition that no convolution has taken, with the ReLU after it.
class FrozenAdd final : public FrozenOperation {
 public:
  FrozenAdd(FrozenLowering& lowering, int first) : FrozenOperation(lowering, first), type_(lowering.type(input())) {
    const bool relu = lowering.fuse(result_, Op::relu);
    a_ = lowering.read(input());
    b_ = lowering.read(node_.inputs[1]);
    y_ = lowering.make(result_, type_);
    elements_ = lowering.elements(result_);
    if (relu) bits_ = lowering.fresh(kernels::groups(elements_), DType::f16);  // one word of 16 bits each
  }

  void plan_backward(FrozenLowering& lowering) override {
    dy_ = lowering.arriving(result_);
    lowering.touch(bits_);
    lowering.contribute(input(), dy_.main);
    copy_ = lowering.fresh(elements_, type_);
    lowering.contribute(node_.inputs[1], copy_);
  }

  void forward(const float*) override {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      const std::int64_t count = wanted(elements_);
      each(device(), kernels::groups(count),
           kernels::Add<T>{at<T>(a_), at<T>(b_), at<T>(y_), count, bits_ != -1, at<std::uint16_t>(bits_)});
    });
  }

  void backward(float*, const PgdUpdate&) override {
    gather(dy_, bits_, type_, elements_);
    add(device(), type_, at<void>(dy_.main), nullptr, at<void>(copy_), wanted(elements_));
  }

 private:
  const DType type_;
  std::int64_t elements_ = 0;
  Buffer a_ = -1, b_ = -1, y_ = -1, bits_ = -1, copy_ = -1;
  Gradient dy_;
};

/// y = relu(a + b). Both addends share one gradient. Without a ReLU the batch norm that follows may make the sum.
class TrainingAdd final : public TrainingOperation {
 public:
  TrainingAdd(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first), type_(lowering.type(input())) {
    relu_ = lowering.fuse(result_, Op::relu);
    a_ = lowering.read(input());
    b_ = lowering.read(node_.inputs[1]);
    y_ = lowering.make(result_, type_);
    elements_ = lowering.elements(result_);
    left_ = !relu_ && lowering.leave({a_, b_}, result_);
  }

  void plan_backward(TrainingLowering& lowering) override {
    lowering.touch(back_y_ = y_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    dy_ = dx_ = dy.buffer;
    if (relu_ && !dy.owned) dx_ = lowering.fresh(elements_, type_);
    for (const int addend : node_.inputs) lowering.contribute(addend, dx_, false);
  }

  void forward(const float*) override {
    if (left_) return;
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements_), kernels::Add<T>{at<T>(a_), at<T>(b_), at<T>(y_), elements_, relu_});
    });
  }

  void backward(const WantedGradients&) override {
    if (!relu_) return;
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements_),
           kernels::ReluGradient<T>{at<T>(back_y_), at<T>(dy_), at<T>(dx_), elements_});
    });
  }

 private:
  const DType type_;
  bool relu_ = false, left_ = false;
  std::int64_t elements_ = 0;
  Buffer a_ = -1, b_ = -1, y_ = -1, back_y_ = -1, dy_ = -1, dx_ = -1;
};

}  // namespace

const NodeOperations add_operations = {make_frozen<FrozenAdd>, make_training<TrainingAdd>};

}  // namespace dat
