#include "max_pool.hpp"

#include "network/operations.hpp"

namespace dat {

namespace {

/// For each value of the result a byte is kept: which pixel of the window it comes from.
template <class Base, class Way>
class MaxPoolOperation : public Base {
 public:
  MaxPoolOperation(Way& lowering, int first)
      : Base(lowering, first),
        type_(lowering.type(this->input())),
        of_{lowering.layout(this->input()), lowering.layout(first), this->node_.kernel, this->node_.stride,
            this->node_.pad},
        x_(lowering.read(this->input())),
        y_(lowering.make(first, type_)),
        place_(lowering.fresh(lowering.elements(first), DType::u8)) {}

  void plan_backward(Way& lowering) override {
    lowering.touch(place_);
    dy_ = lowering.arriving(this->result_);
    dx_ = lowering.fresh(lowering.elements(this->input()), type_);
    lowering.contribute(this->input(), dx_);
  }

 protected:
  /// Of so many samples.
  void pool(std::int64_t samples) const {
    const std::int64_t elements = samples * of_.y.elements();
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(this->device(), kernels::groups(elements),
           kernels::MaxPoolForward<T>{this->template at<T>(x_), this->template at<T>(y_), place(), of_, elements});
    });
  }
  void unpool(std::int64_t samples, Planner::Buffer dy) const {
    const std::int64_t elements = samples * of_.x.elements();
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(this->device(), kernels::groups(elements),
           kernels::MaxPoolBackward<T>{this->template at<T>(dy), place(), this->template at<T>(dx_), of_, elements});
    });
  }

  const DType type_;
  const kernels::MaxPool of_;
  typename Way::Gradient dy_;

 private:
  [[nodiscard]] std::uint8_t* place() const { return this->template at<std::uint8_t>(place_); }

  const Planner::Buffer x_, y_, place_;
  Planner::Buffer dx_ = -1;
};

class FrozenMaxPool final : public MaxPoolOperation<FrozenOperation, FrozenLowering> {
 public:
  using MaxPoolOperation::MaxPoolOperation;
  void forward(const float*) override { pool(wanted(n_)); }
  void backward(float*, const PgdUpdate&) override {
    gather(dy_);
    unpool(wanted(n_), dy_.main);
  }
};

class TrainingMaxPool final : public MaxPoolOperation<TrainingOperation, TrainingLowering> {
 public:
  using MaxPoolOperation::MaxPoolOperation;
  void forward(const float*) override { pool(n_); }
  void backward(const WantedGradients&) override { unpool(n_, dy_.buffer); }
};

}  // namespace

const NodeOperations max_pool_operations = {make_frozen<FrozenMaxPool>, make_training<TrainingMaxPool>};

}  // namespace dat
