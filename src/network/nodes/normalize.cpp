#include <algorithm>
#include <cassert>
#include <iterator>

#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// The images of either program on their way to the first convolution. They are a pass of their own: folded into the
/// weights, a normalization would be wrong at the border, where the padding's zeros come after it.
template <class Base, class Way>
class NormalizeOperation : public Base {
 public:
  NormalizeOperation(Way& lowering, int first)
      : Base(lowering, first),
        y_(lowering.make(first)),
        elements_(lowering.elements(first)),
        kernel_{.x = nullptr, .y = nullptr, .layout = lowering.layout(first), .mean = {}, .deviation = {}} {
    const Normalization& of = lowering.model.graph.normalization;
    assert(of.mean.size() <= std::size(kernel_.mean));
    std::ranges::copy(of.mean, kernel_.mean);
    std::ranges::copy(of.deviation, kernel_.deviation);
  }

  void plan_backward(Way&) override {}
  void forward(const float* image) override { run(kernel_, image, this->at(y_)); }

 protected:
  /// Turns the gradient of the normalized images, which the convolution after it leaves where that of the images goes,
  /// into that.
  void divide(float* gradient) const {
    kernels::NormalizeImages kernel = kernel_;
    std::ranges::fill(kernel.mean, 0.0F);
    run(kernel, gradient, gradient);
  }

 private:
  void run(kernels::NormalizeImages kernel, const float* x, float* y) const {
    kernel.x = x;
    kernel.y = y;
    each(this->device(), elements_, kernel);
  }

  const Planner::Buffer y_;
  const std::int64_t elements_;
  kernels::NormalizeImages kernel_;
};

class FrozenNormalize final : public NormalizeOperation<FrozenOperation, FrozenLowering> {
 public:
  using NormalizeOperation::NormalizeOperation;
  /// A step of the attack has been made by then: it takes signs, which a division by standard deviations does not
  /// change.
  void backward(float* image_gradient, const PgdUpdate& update) override {
    if (update.x == nullptr) divide(image_gradient);
  }
};

class TrainingNormalize final : public NormalizeOperation<TrainingOperation, TrainingLowering> {
 public:
  using NormalizeOperation::NormalizeOperation;
  void backward(const WantedGradients& wanted) override { divide(wanted.image_gradient); }
};

}  // namespace

const NodeOperations normalize_operations = {make_frozen<FrozenNormalize>, make_training<TrainingNormalize>};

}  // namespace dat
