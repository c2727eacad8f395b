#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// Its result and the gradient of it are f32 in any storage.
template <class Base, class Way>
class PoolOperation : public Base {
 public:
  PoolOperation(Way& lowering, int first)
      : Base(lowering, first),
        in_(lowering.layout(this->input())),
        type_(lowering.type(this->input())),
        x_(lowering.read(this->input())),
        y_(lowering.make(first)) {}

  void plan_backward(Way& lowering) override {
    dy_ = lowering.arriving(this->result_);
    dx_ = lowering.fresh(lowering.elements(this->input()), type_);
    lowering.contribute(this->input(), dx_);
  }

 protected:
  /// Of so many samples. scale: null, or factors of the gradient.
  void pool(std::int64_t samples) const {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(this->device(), samples * in_.c, kernels::PoolForward<T>{this->template at<T>(x_), this->at(y_), in_});
    });
  }
  void unpool(std::int64_t samples, Planner::Buffer dy, const float* scale) const {
    const std::int64_t elements = samples * in_.elements();
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      each(this->device(), kernels::groups(elements),
           kernels::PoolBackward<T>{this->at(dy), this->template at<T>(dx_), in_, elements, scale});
    });
  }

  const Layout in_;
  typename Way::Gradient dy_;

 private:
  const DType type_;  ///< type of x
  const Planner::Buffer x_, y_;
  Planner::Buffer dx_ = -1;
};

class FrozenPool final : public PoolOperation<FrozenOperation, FrozenLowering> {
 public:
  using PoolOperation::PoolOperation;
  void forward(const float*) override { pool(wanted(n_)); }
  void backward(float*, const PgdUpdate&) override {
    gather(dy_);
    unpool(wanted(n_), dy_.main, nullptr);
  }
};

/// Pooling, after which gradients are not scaled: the scale is for the range of 16 bits.
class TrainingPool final : public PoolOperation<TrainingOperation, TrainingLowering> {
 public:
  TrainingPool(TrainingLowering& lowering, int first) : PoolOperation(lowering, first), scale_(lowering.arrays.scale) {}
  void forward(const float*) override { pool(n_); }
  void backward(const WantedGradients&) override { unpool(n_, dy_.buffer, scale_); }

 private:
  const float* const scale_;
};

}  // namespace

const NodeOperations pool_operations = {make_frozen<FrozenPool>, make_training<TrainingPool>};

}  // namespace dat
