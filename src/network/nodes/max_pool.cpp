#include "max_pool.hpp"

#include "network/frozen_lowering.hpp"
#include "network/training_lowering.hpp"

namespace dat {

namespace {

[[nodiscard]] kernels::MaxPool windows_of(const Lowering& lowering, const Node& node, int result) {
  return {lowering.layout(node.inputs[0]), lowering.layout(result), node.kernel, node.stride, node.pad};
}

/// It keeps for each value of its result, as a byte, which pixel of the window it comes from.
class FrozenMaxPool final : public FrozenOperation {
 public:
  FrozenMaxPool(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first),
        type_(lowering.type(input())),
        windows_(windows_of(lowering, node_, first)),
        x_(lowering.read(input())),
        y_(lowering.make(first, type_)),
        place_(lowering.fresh(lowering.elements(first), DType::u8)) {}

  void plan_backward(FrozenLowering& lowering) override {
    lowering.touch(place_);
    dy_ = lowering.arriving(result_);
    dx_ = lowering.fresh(lowering.elements(input()), type_);
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    const std::int64_t elements = wanted(n_ * windows_.y.elements());
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements),
           kernels::MaxPoolForward<T>{at<T>(x_), at<T>(y_), at<std::uint8_t>(place_), windows_, elements});
    });
  }

  void backward(float*, const PgdUpdate&) override {
    gather(dy_, -1, type_, n_ * windows_.y.elements());
    const std::int64_t elements = wanted(n_ * windows_.x.elements());
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements),
           kernels::MaxPoolBackward<T>{at<T>(dy_.main), at<std::uint8_t>(place_), at<T>(dx_), windows_, elements});
    });
  }

 private:
  const DType type_;
  const kernels::MaxPool windows_;
  const Buffer x_, y_, place_;
  Buffer dx_ = -1;
  Gradient dy_;
};

class TrainingMaxPool final : public TrainingOperation {
 public:
  TrainingMaxPool(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        type_(lowering.type(input())),
        windows_(windows_of(lowering, node_, first)),
        x_(lowering.read(input())),
        y_(lowering.make(first, type_)),
        place_(lowering.fresh(lowering.elements(first), DType::u8)) {}

  void plan_backward(TrainingLowering& lowering) override {
    lowering.touch(place_);
    dy_ = lowering.arriving(result_).buffer;
    dx_ = lowering.fresh(lowering.elements(input()), type_);
    lowering.contribute(input(), dx_, true);
  }

  void forward(const float*) override {
    const std::int64_t elements = n_ * windows_.y.elements();
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements),
           kernels::MaxPoolForward<T>{at<T>(x_), at<T>(y_), at<std::uint8_t>(place_), windows_, elements});
    });
  }

  void backward(const WantedGradients& wanted) override {
    if (!wanted.dx) return;
    const std::int64_t elements = n_ * windows_.x.elements();
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device(), kernels::groups(elements),
           kernels::MaxPoolBackward<T>{at<T>(dy_), at<std::uint8_t>(place_), at<T>(dx_), windows_, elements});
    });
  }

 private:
  const DType type_;
  const kernels::MaxPool windows_;
  const Buffer x_, y_, place_;
  Buffer dy_ = -1, dx_ = -1;
};

}  // namespace

std::unique_ptr<FrozenOperation> frozen_max_pool(FrozenLowering& lowering, int node) {
  return std::make_unique<FrozenMaxPool>(lowering, node);
}

std::unique_ptr<TrainingOperation> training_max_pool(TrainingLowering& lowering, int node) {
  return std::make_unique<TrainingMaxPool>(lowering, node);
}

}  // namespace dat
