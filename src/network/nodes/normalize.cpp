#include <algorithm>
#include <cassert>
#include <iterator>

#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// The images of both programs on their way to the first convolution. They are a pass of their own: folded into the
/// weights, a normalization would be wrong at the border, where the padding's zeros come after it.
class NormalizedImages {
 public:
  NormalizedImages(const Lowering& lowering, int node)
      : device_(lowering.model.backend.device()),
        elements_(lowering.elements(node)),
        kernel_{.x = nullptr, .y = nullptr, .layout = lowering.layout(node), .mean = {}, .deviation = {}} {
    const Normalization& of = lowering.model.graph.normalization;
    assert(of.mean.size() <= std::size(kernel_.mean));
    std::ranges::copy(of.mean, kernel_.mean);
    std::ranges::copy(of.deviation, kernel_.deviation);
  }
  void forward(const float* x, float* y) const {
    kernels::NormalizeImages kernel = kernel_;
    kernel.x = x;
    kernel.y = y;
    each(device_, elements_, kernel);
  }
  /// Turns the gradient of the normalized images into that of the images, in place.
  void backward(float* gradient) const {
    kernels::NormalizeImages kernel = kernel_;
    kernel.x = kernel.y = gradient;
    std::fill(std::begin(kernel.mean), std::end(kernel.mean), 0.0F);
    each(device_, elements_, kernel);
  }

 private:
  Device device_;
  std::int64_t elements_;
  kernels::NormalizeImages kernel_;
};

/// The convolution after it leaves the gradient where that of the images goes.
class FrozenNormalize final : public FrozenOperation {
 public:
  FrozenNormalize(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first), images_(lowering, first), y_(lowering.make(first)) {}

  void plan_backward(FrozenLowering&) override {}
  void forward(const float* image) override { images_.forward(image, at(y_)); }
  /// A step of the attack has been made by then: it takes signs, which a division by standard deviations does not
  /// change.
  void backward(float* image_gradient, const PgdUpdate& update) override {
    if (update.x == nullptr) images_.backward(image_gradient);
  }

 private:
  const NormalizedImages images_;
  const Buffer y_;
};

class TrainingNormalize final : public TrainingOperation {
 public:
  TrainingNormalize(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first), images_(lowering, first), y_(lowering.make(first)) {}

  void plan_backward(TrainingLowering&) override {}
  void forward(const float* image) override { images_.forward(image, at(y_)); }
  void backward(const WantedGradients& wanted) override { images_.backward(wanted.image_gradient); }

 private:
  const NormalizedImages images_;
  const Buffer y_;
};

}  // namespace

const NodeOperations normalize_operations = {make_frozen<FrozenNormalize>, make_training<TrainingNormalize>};

}  // namespace dat
