#include "network/frozen_lowering.hpp"
#include "network/nodes/folded_norm.hpp"
#include "network/training_lowering.hpp"
#include "pointwise.hpp"

namespace dat {

FoldedNorm::FoldedNorm(const FrozenLowering& lowering, int node) {
  const auto norm = static_cast<std::size_t>(lowering.node(node).norm);
  const std::int64_t begin = lowering.model.graph.norms[norm].begin;
  scale = lowering.arrays.scale + begin;
  shift = lowering.arrays.shift + begin;
}

namespace {

/// y = act(scale*x + shift): a batch norm that no convolution has taken, with the ReLU or SiLU behind it; or one of
/// these alone. For its gradient a ReLU keeps a bit of each element; a SiLU keeps its slope there, since x may be
/// overwritten on the way, by a residual that is added in place. The way forth may be left to the convolution behind
/// it.
class FrozenAffine final : public FrozenOperation {
 public:
  FrozenAffine(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first), type_(lowering.type(input())), layout_(lowering.layout(first)) {
    if (node_.op == Op::batch_norm) norm_ = FoldedNorm(lowering, first);
    relu_ = node_.op == Op::relu || (node_.op != Op::silu && lowering.fuse(result_, Op::relu));
    const bool silu = !relu_ && (node_.op == Op::silu || lowering.fuse(result_, Op::silu));
    x_ = lowering.read(input());
    elements_ = lowering.elements(result_);
    if (relu_) bits_ = lowering.fresh(kernels::groups(elements_), DType::f16);  // one word of 16 bits each
    if (!relu_ || norm_.scale == nullptr || !lowering.leave_norm(result_, {x_, bits_, norm_.scale, norm_.shift}))
      y_ = lowering.make(result_, type_);
    if (silu) slope_ = lowering.fresh(elements_, type_);
  }

  void plan_backward(FrozenLowering& lowering) override {
    dy_ = lowering.arriving(result_);
    lowering.touch(bits_);
    lowering.touch(slope_);
    accumulates_ = lowering.has_gradient(input());
    dx_ = accumulates_ ? lowering.add_to(input()) : dy_.main;
    if (!accumulates_) lowering.contribute(input(), dx_);
  }

  void forward(const float*) override {
    if (y_ < 0) return;  // left to the convolution
    const std::int64_t count = wanted(elements_);
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      if (slope_ >= 0)
        return each(
            device(), kernels::groups(count),
            kernels::AffineSilu<T>{at<T>(x_), norm_.scale, norm_.shift, at<T>(y_), at<T>(slope_), layout_, count});
      each(device(), kernels::groups(count),
           kernels::AffineRelu<T>{at<T>(x_), norm_.scale, norm_.shift, at<T>(y_), at<std::uint16_t>(bits_), layout_,
                                  count, relu_});
    });
  }

  void backward(float*, const PgdUpdate&) override {
    const std::int64_t count = wanted(elements_);
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      if (slope_ >= 0)
        return each(device(), kernels::groups(count),
                    kernels::AffineSiluGradient<T>{at<T>(dy_.main), at<T>(dy_.extra), norm_.scale, at<T>(slope_),
                                                   at<T>(dx_), layout_, count, accumulates_});
      each(device(), kernels::groups(count),
           kernels::AffineReluGradient<T>{at<T>(dy_.main), at<T>(dy_.extra), norm_.scale, at<std::uint16_t>(bits_),
                                          at<T>(dx_), layout_, count, accumulates_});
    });
  }

 private:
  const DType type_;
  const Layout layout_;
  FoldedNorm norm_;
  bool relu_ = false, accumulates_ = false;
  std::int64_t elements_ = 0;
  Buffer x_ = -1, y_ = -1, bits_ = -1, slope_ = -1, dx_ = -1;
  Gradient dy_;
};

/// With the statistics of the batch, and the ReLU behind it.
class TrainingBatchNorm final : public TrainingOperation {
 public:
  TrainingBatchNorm(TrainingLowering& lowering, int first) : TrainingOperation(lowering, first) {
    const bool relu = lowering.fuse(result_, Op::relu);
    x_ = lowering.read(input());
    y_ = lowering.make(result_);
    require(std::int64_t{n_} * node_.h * node_.w > 1, ExitCode::usage,
            "batch norm needs more than one value per channel; take a larger batch, or larger images");
    norm_ = model_.backend.batch_norm(
        {.n = n_, .c = node_.c, .h = node_.h, .w = node_.w, .relu = relu, .epsilon = Model::kEpsilon});
    const std::int64_t begin = model_.graph.norms[static_cast<std::size_t>(node_.norm)].begin;
    mean_ = lowering.arrays.mean + begin;
    variance_ = lowering.arrays.variance + begin;
    dgamma_ = lowering.arrays.norm_gradients;
    dbeta_ = dgamma_ + node_.c;
  }

  void plan_backward(TrainingLowering& lowering) override {
    lowering.touch(x_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    dy_ = dy.buffer;
    dx_ = dy.owned ? dy_ : lowering.fresh(lowering.elements(input()));
    lowering.contribute(input(), dx_, true);
  }

  void forward(const float*) override {
    norm_->forward(at(x_), model_.values(node_.weight), model_.values(node_.bias), at(y_), mean_, variance_);
  }

  void backward(const WantedGradients& wanted) override {
    if (!wanted.dx && wanted.dw == nullptr && wanted.dbias == nullptr) return;
    norm_->backward(at(x_), at(dy_), model_.values(node_.weight), mean_, variance_, at(dx_), dgamma_, dbeta_);
  }

  [[nodiscard]] bool weights_first() const override { return false; }
  void backward_weights(const WantedGradients& wanted) override {
    if (wanted.dw != nullptr) each(device(), node_.c, kernels::Scale{dgamma_, wanted.dw, 1.0F, wanted.accumulate});
    if (wanted.dbias != nullptr) each(device(), node_.c, kernels::Scale{dbeta_, wanted.dbias, 1.0F, wanted.accumulate});
  }

 private:
  std::unique_ptr<BatchNorm> norm_;
  float *mean_, *variance_, *dgamma_, *dbeta_;
  Buffer x_ = -1, y_ = -1, dy_ = -1, dx_ = -1;
};

}  // namespace

std::unique_ptr<FrozenOperation> frozen_affine(FrozenLowering& lowering, int node) {
  return std::make_unique<FrozenAffine>(lowering, node);
}

std::unique_ptr<TrainingOperation> training_batch_norm(TrainingLowering& lowering, int node) {
  return std::make_unique<TrainingBatchNorm>(lowering, node);
}

}  // namespace dat
