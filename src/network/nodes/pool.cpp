#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// Its result and the gradient of it are f32 in any storage.
class FrozenPool final : public FrozenOperation {
 public:
  FrozenPool(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first),
        type_(lowering.type(input())),
        in_(lowering.layout(input())),
        x_(lowering.read(input())),
        y_(lowering.make(first, DType::f32)) {}

  void plan_backward(FrozenLowering& lowering) override {
    dy_ = lowering.arriving(result_);
    dx_ = lowering.fresh(lowering.elements(input()), type_);
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), wanted(std::int64_t{n_} * in_.c), kernels::PoolForward<T>{at<T>(x_), at(y_), in_});
    });
  }

  void backward(float*, const PgdUpdate&) override {
    gather(dy_, -1, DType::f32, std::int64_t{n_} * in_.c);
    const std::int64_t elements = wanted(n_ * in_.elements());
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements), kernels::PoolBackward<T>{at(dy_.main), at<T>(dx_), in_, elements});
    });
  }

 private:
  const DType type_;  ///< type of x
  const Layout in_;
  const Buffer x_, y_;
  Buffer dx_ = -1;
  Gradient dy_;
};

/// Pooling, after which gradients are not scaled: the scale is for the range of 16 bits.
class TrainingPool final : public TrainingOperation {
 public:
  TrainingPool(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        type_(lowering.type(input())),
        scale_(lowering.arrays.scale),
        in_(lowering.layout(input())),
        x_(lowering.read(input())),
        y_(lowering.make(first)) {}

  void plan_backward(TrainingLowering& lowering) override {
    dy_ = lowering.arriving(result_).buffer;
    dx_ = lowering.fresh(lowering.elements(input()), type_);
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), std::int64_t{n_} * in_.c, kernels::PoolForward<T>{at<T>(x_), at(y_), in_});
    });
  }

  void backward(const WantedGradients&) override {
    const std::int64_t elements = n_ * in_.elements();
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements), kernels::PoolBackward<T>{at(dy_), at<T>(dx_), in_, elements, scale_});
    });
  }

 private:
  const DType type_;  ///< type of x
  const float* const scale_;
  const Layout in_;
  const Buffer x_, y_;
  Buffer dy_ = -1, dx_ = -1;
};

}  // namespace

const NodeOperations pool_operations = {make_frozen<FrozenPool>, make_training<TrainingPool>};

}  // namespace dat
