#include "network/operations.hpp"

namespace dat {

namespace {

/// The last operation: it makes the program's logits, and its gradient begins with their gradient.
class FrozenLinear final : public FrozenOperation {
 public:
  FrozenLinear(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first),
        logits_(lowering.arrays.logits),
        dlogits_(lowering.arrays.dlogits),
        x_(lowering.read(input())),
        linear_(model_.backend.linear(n_, lowering.layout(input()).c, node_.c)) {}

  void plan_backward(FrozenLowering& lowering) override {
    dx_ = lowering.fresh(lowering.elements(input()), lowering.type(input()));
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    linear_->forward(at(x_), model_.values(node_.weight), model_.values(node_.bias), logits_);
  }

  void backward(float*, const PgdUpdate&) override {
    linear_->backward_data(dlogits_, model_.values(node_.weight), at(dx_));
  }

 private:
  float *const logits_, *const dlogits_;
  const Buffer x_;
  const std::unique_ptr<Linear> linear_;
  Buffer dx_ = -1;
};

class TrainingLinear final : public TrainingOperation {
 public:
  TrainingLinear(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        logits_(lowering.arrays.logits),
        dlogits_(lowering.arrays.dlogits),
        x_(lowering.read(input())),
        linear_(model_.backend.linear(n_, lowering.layout(input()).c, node_.c)) {}

  void plan_backward(TrainingLowering& lowering) override {
    dx_ = lowering.fresh(lowering.elements(input()));  // may lie where x does: the weights' gradient comes before it
    lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    linear_->forward(at(x_), model_.values(node_.weight), model_.values(node_.bias), logits_);
  }

  void backward_weights(const WantedGradients& wanted) override {
    linear_->backward_weights(at(x_), dlogits_, wanted.dw, wanted.dbias, wanted.accumulate);
  }

  void backward(const WantedGradients&) override {
    linear_->backward_data(dlogits_, model_.values(node_.weight), at(dx_));
  }

 private:
  float *const logits_, *const dlogits_;
  const Buffer x_;
  const std::unique_ptr<Linear> linear_;
  Buffer dx_ = -1;
};

}  // namespace

const NodeOperations linear_operations = {make_frozen<FrozenLinear>, make_training<TrainingLinear>};

}  // namespace dat
