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
    add(device(), type_, at<void>(a_), at<void>(b_), at<void>(y_), wanted(elements_), bits_ != -1,
        at<std::uint16_t>(bits_));
  }

  void backward(float*, const PgdUpdate&) override {
    gather(dy_, bits_);
    add(device(), type_, at<void>(dy_.main), nullptr, at<void>(copy_), wanted(elements_));
  }

 private:
  const DType type_;
  std::int64_t elements_ = 0;
  Buffer a_ = -1, b_ = -1, y_ = -1, bits_ = -1, copy_ = -1;
  Gradient dy_;
};

/// y = a + b. Both addends share one gradient. The batch norm that follows may make the sum.
class TrainingAdd final : public TrainingOperation {
 public:
  TrainingAdd(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        type_(lowering.type(input())),
        a_(lowering.read(input())),
        b_(lowering.read(node_.inputs[1])),
        y_(lowering.make(result_, type_)),
        elements_(lowering.elements(result_)),
        left_(lowering.leave({a_, b_}, result_)) {}

  void plan_backward(TrainingLowering& lowering) override {
    const Buffer dy = lowering.arriving(result_).buffer;
    for (const int addend : node_.inputs) lowering.contribute(addend, dy, false);
  }

  void forward(const float*) override {
    if (left_) return;
    add(device(), type_, at<void>(a_), at<void>(b_), at<void>(y_), elements_);
  }
  void backward(const WantedGradients&) override {}

 private:
  const DType type_;
  const Buffer a_, b_, y_;
  const std::int64_t elements_;
  const bool left_;
};

}  // namespace

const NodeOperations add_operations = {make_frozen<FrozenAdd>, make_training<TrainingAdd>};

}  // namespace dat
