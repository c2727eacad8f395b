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

template <class Base, class Way>
class MaxPoolOperation : public Base {
 public:
  MaxPoolOperation(Way& lowering, int first)
      : Base(lowering, first),
        windows_(lowering, this->node_, first),
        x_(lowering.read(this->input())),
        y_(lowering.make(first, windows_.type())),
        place_(lowering.fresh(lowering.elements(first), DType::u8)) {}

  void plan_backward(Way& lowering) override {
    lowering.touch(place_);
    dy_ = lowering.arriving(this->result_);
    dx_ = lowering.fresh(lowering.elements(this->input()), windows_.type());
    lowering.contribute(this->input(), dx_);
  }

 protected:
  /// elements: of y, of dx.
  void pool(std::int64_t elements) const { windows_.forward(to(x_), to(y_), place(), elements); }
  void unpool(Planner::Buffer dy, std::int64_t elements) const {
    windows_.backward(to(dy), place(), to(dx_), elements);
  }

  const Windows windows_;
  typename Way::Gradient dy_;

 private:
  [[nodiscard]] void* to(Planner::Buffer buffer) const { return this->template at<void>(buffer); }
  [[nodiscard]] std::uint8_t* place() const { return this->template at<std::uint8_t>(place_); }

  const Planner::Buffer x_, y_, place_;
  Planner::Buffer dx_ = -1;
};

class FrozenMaxPool final : public MaxPoolOperation<FrozenOperation, FrozenLowering> {
 public:
  using MaxPoolOperation::MaxPoolOperation;
  void forward(const float*) override { pool(wanted(windows_.after(n_))); }
  void backward(float*, const PgdUpdate&) override {
    gather(dy_, -1, windows_.type(), windows_.after(n_));
    unpool(dy_.main, wanted(windows_.before(n_)));
  }
};

class TrainingMaxPool final : public MaxPoolOperation<TrainingOperation, TrainingLowering> {
 public:
  using MaxPoolOperation::MaxPoolOperation;
  void forward(const float*) override { pool(windows_.after(n_)); }
  void backward(const WantedGradients&) override { unpool(dy_.buffer, windows_.before(n_)); }
};

}  // namespace

const NodeOperations max_pool_operations = {make_frozen<FrozenMaxPool>, make_training<TrainingMaxPool>};

}  // namespace dat
