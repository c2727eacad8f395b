#include "max_pool.hpp"

#include "network/operations.hpp"

namespace dat {

namespace {

/// The passes of both programs. For each value of the result a byte is kept: which pixel of the window it comes from.
class Windows {
 public:
  Windows(const Lowering& lowering, const Node& node, int result)
      : device_(lowering.model.backend.device()),
        type_(lowering.type(node.inputs[0])),
        of_{lowering.layout(node.inputs[0]), lowering.layout(result), node.kernel, node.stride, node.pad} {}

  [[nodiscard]] DType type() const { return type_; }
  /// Elements of so many samples, before and after.
  [[nodiscard]] std::int64_t before(int samples) const { return samples * of_.x.elements(); }
  [[nodiscard]] std::int64_t after(int samples) const { return samples * of_.y.elements(); }

  /// elements: of y.
  void forward(const void* x, void* y, std::uint8_t* place, std::int64_t elements) const {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device_, kernels::groups(elements),
           kernels::MaxPoolForward<T>{static_cast<const T*>(x), static_cast<T*>(y), place, of_, elements});
    });
  }
  /// elements: of dx.
  void backward(const void* dy, const std::uint8_t* place, void* dx, std::int64_t elements) const {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(device_, kernels::groups(elements),
           kernels::MaxPoolBackward<T>{static_cast<const T*>(dy), place, static_cast<T*>(dx), of_, elements});
    });
  }

 private:
  const Device device_;
  const DType type_;
  const kernels::MaxPool of_;
};

class FrozenMaxPool final : public FrozenOperation {
 public:
  FrozenMaxPool(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first),
        windows_(lowering, node_, first),
        x_(lowering.read(input())),
        y_(lowering.make(first, windows_.type())),
        place_(lowering.fresh(lowering.elements(first), DType::u8)) {}

  void plan_backward(FrozenLowering& lowering) override {
    lowering.touch(place_);
    dy_ = lowering.arriving(result_);
    dx_ = lowering.fresh(lowering.elements(input()), windows_.type());
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    windows_.forward(at<void>(x_), at<void>(y_), at<std::uint8_t>(place_), wanted(windows_.after(n_)));
  }

  void backward(float*, const PgdUpdate&) override {
    gather(dy_, -1, windows_.type(), windows_.after(n_));
    windows_.backward(at<void>(dy_.main), at<std::uint8_t>(place_), at<void>(dx_), wanted(windows_.before(n_)));
  }

 private:
  const Windows windows_;
  const Buffer x_, y_, place_;
  Buffer dx_ = -1;
  Gradient dy_;
};

class TrainingMaxPool final : public TrainingOperation {
 public:
  TrainingMaxPool(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        windows_(lowering, node_, first),
        x_(lowering.read(input())),
        y_(lowering.make(first, windows_.type())),
        place_(lowering.fresh(lowering.elements(first), DType::u8)) {}

  void plan_backward(TrainingLowering& lowering) override {
    lowering.touch(place_);
    dy_ = lowering.arriving(result_).buffer;
    dx_ = lowering.fresh(lowering.elements(input()), windows_.type());
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    windows_.forward(at<void>(x_), at<void>(y_), at<std::uint8_t>(place_), windows_.after(n_));
  }

  void backward(const WantedGradients&) override {
    windows_.backward(at<void>(dy_), at<std::uint8_t>(place_), at<void>(dx_), windows_.before(n_));
  }

 private:
  const Windows windows_;
  const Buffer x_, y_, place_;
  Buffer dy_ = -1, dx_ = -1;
};

}  // namespace

const NodeOperations max_pool_operations = {make_frozen<FrozenMaxPool>, make_training<TrainingMaxPool>};

}  // namespace dat
