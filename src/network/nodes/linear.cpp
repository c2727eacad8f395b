#include "network/operations.hpp"

namespace dat {

namespace {

/// The last operation: it makes the program's logits, and its gradient begins with their gradient.
template <class Base, class Way>
class LinearOperation : public Base {
 public:
  LinearOperation(Way& lowering, int first)
      : Base(lowering, first),
        logits_(lowering.arrays.logits),
        dlogits_(lowering.arrays.dlogits),
        x_(lowering.read(this->input())),
        linear_(this->model_.backend.linear(this->n_, lowering.layout(this->input()).c, this->node_.c)) {}

  void plan_backward(Way& lowering) override {
    dx_ = lowering.fresh(lowering.elements(this->input()));  // may lie where x does: the weights' gradient comes first
    lowering.contribute(this->input(), dx_);
  }

  void forward(const float*) override {
    linear_->forward(this->at(x_), this->model_.values(this->node_.weight), this->model_.values(this->node_.bias),
                     logits_);
  }

 protected:
  void backward_data() { linear_->backward_data(dlogits_, this->model_.values(this->node_.weight), this->at(dx_)); }

  float *const logits_, *const dlogits_;
  const Planner::Buffer x_;
  const std::unique_ptr<Linear> linear_;

 private:
  Planner::Buffer dx_ = -1;
};

class FrozenLinear final : public LinearOperation<FrozenOperation, FrozenLowering> {
 public:
  using LinearOperation::LinearOperation;
  void backward(float*, const PgdUpdate&) override { backward_data(); }
};

class TrainingLinear final : public LinearOperation<TrainingOperation, TrainingLowering> {
 public:
  using LinearOperation::LinearOperation;
  void backward(const WantedGradients&) override { backward_data(); }
  void backward_weights(const WantedGradients& wanted) override {
    linear_->backward_weights(at(x_), dlogits_, wanted.dw, wanted.dbias, wanted.accumulate);
  }
};

}  // namespace

const NodeOperations linear_operations = {make_frozen<FrozenLinear>, make_training<TrainingLinear>};

}  // namespace dat
