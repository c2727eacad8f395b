#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// y = act(scale*x + shift): a batch norm that no convolution has taken, with the ReLU or SiLU after it; or one of
/// these alone. For its gradient a ReLU keeps a bit of each element; a SiLU keeps its slope there, since x may be
/// overwritten on the way, by a residual that is added in place. The forward pass may be left to the convolution after
/// it.
class FrozenAffine final : public FrozenOperation {
 public:
  FrozenAffine(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first), type_(lowering.type(input())), layout_(lowering.layout(first)) {
    if (node_.op == Op::batch_norm) norm_ = lowering.folded_norm(first);
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
    if (y_ == -1) return;  // left to the convolution
    const std::int64_t count = wanted(elements_);
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      if (slope_ != -1)
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
      if (slope_ != -1)
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

/// Batch norm in training, with the statistics of the batch, the addition that makes its x, the addition after it whose
/// other value is there, and the ReLU. Where its parameters stand still (Model::freeze), it has the running statistics,
/// and is an affine map.
class TrainingBatchNorm final : public TrainingOperation {
 public:
  TrainingBatchNorm(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        type_(lowering.storage),
        layout_(lowering.layout(first)),
        elements_(lowering.elements(first)),
        unscale_(lowering.arrays.unscale()) {
    // Operations run in the order of their results: nothing may come between.
    residual_ = lowering.other_addend(result_);
    if (lowering.readers(result_) != std::vector{lowering.first_not_taken()}) residual_ = -1;
    if (residual_ != -1) {
      added_ = lowering.read(residual_);
      lowering.fuse(result_, Op::add);
    }
    relu_ = lowering.fuse(result_, Op::relu);
    x_ = lowering.read(input());
    sum_ = lowering.take_addition(input());
    y_ = lowering.make(result_, type_);
    const std::int64_t begin = model_.graph.norms[static_cast<std::size_t>(node_.norm)].begin;
    if (node_.weight < model_.freezing.segments) {
      scale_ = lowering.arrays.norm_scale + begin;
      shift_ = lowering.arrays.norm_shift + begin;
      if (model_.freezing.always) return;
    }
    require(std::int64_t{n_} * node_.h * node_.w > 1, ExitCode::usage,
            "batch norm needs more than one value per channel; take a larger batch, or larger images");
    norm_ = model_.backend.batch_norm({.n = n_,
                                       .c = node_.c,
                                       .h = node_.h,
                                       .w = node_.w,
                                       .of_sum = sum_.has_value(),
                                       .residual = residual_ != -1,
                                       .relu = relu_,
                                       .again = scale_ == nullptr && lowering.drop(*this, {input(), residual_}),
                                       .epsilon = Model::kEpsilon,
                                       .storage = type_});
    mean_ = lowering.arrays.mean + begin;
    variance_ = lowering.arrays.variance + begin;
    dgamma_ = lowering.arrays.norm_gradients;
  }

  void plan_backward(TrainingLowering& lowering) override {
    back_x_ = lowering.again(input());
    if (norm_->reads_result() || (scale_ != nullptr && relu_)) lowering.touch(back_y_ = y_);
    const TrainingLowering::Gradient dy = lowering.arriving(result_);
    const auto fresh = [&] { return lowering.fresh(elements_, type_); };
    dy_ = dy.buffer;
    if (residual_ != -1) {
      dresidual_ = dy.owned || !relu_ ? dy_ : fresh();
      lowering.contribute(residual_, dresidual_, dy.owned || relu_);
    }
    dx_ = dy.owned && residual_ == -1 ? dy_ : fresh();
    addend_ = lowering.take_part(input());
    lowering.contribute(input(), dx_);
  }

  void plan_again(TrainingLowering& lowering, Buffer into) override {
    again_ = into;
    again_x_ = lowering.source(input());
    if (residual_ != -1) again_added_ = lowering.source(residual_);
  }

  void make_again() override {
    norm_->again(at<void>(again_x_), at<void>(again_added_), model_.values(node_.weight), model_.values(node_.bias),
                 mean_, variance_, at<void>(again_));
  }

  void forward(const float*) override {
    if (model_.stands_still(node_.weight)) return forward_affine();
    const float *gamma = model_.values(node_.weight), *beta = model_.values(node_.bias);
    if (sum_)
      norm_->forward({at<void>(sum_->a), at<void>(sum_->b), at<void>(x_)}, at<void>(added_), gamma, beta, at<void>(y_),
                     mean_, variance_);
    else
      norm_->forward(at<void>(x_), at<void>(added_), gamma, beta, at<void>(y_), mean_, variance_);
  }

  void backward(const WantedGradients& wanted) override {
    const bool told = wanted.dw != nullptr || wanted.dbias != nullptr;
    if (residual_ == -1 && !wanted.dx && !told) return;
    if (model_.stands_still(node_.weight)) return backward_affine();
    norm_->backward(at<void>(back_x_), at<void>(back_y_), at<void>(dy_), model_.values(node_.weight),
                    model_.values(node_.bias), mean_, variance_,
                    {.dx = at<void>(dx_),
                     .addend = at<void>(addend_),
                     .dresidual = at<void>(dresidual_),
                     .dgamma = told ? wanted.dw : dgamma_,
                     .dbeta = told ? wanted.dbias : dgamma_ + node_.c,
                     .accumulate = wanted.accumulate,
                     .factor = unscale_});
  }

  [[nodiscard]] bool weights_first() const override { return false; }
  void backward_weights(const WantedGradients& wanted) override {
    const auto take = [&](const float* from, float* to, int count) {
      if (to != nullptr) each(device(), count, kernels::Scale{from, to, 1.0F, wanted.accumulate});
    };
    const bool one_array = wanted.dw != nullptr && wanted.dbias == wanted.dw + node_.c;
    take(dgamma_, wanted.dw, one_array ? 2 * node_.c : node_.c);
    if (!one_array) take(dgamma_ + node_.c, wanted.dbias, node_.c);
  }

 private:
  /// y = relu(scale*x + shift + residual).
  void forward_affine() {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      const std::int64_t groups = kernels::groups(elements_);
      const T* const added = at<T>(added_);
      if (sum_) each(device(), groups, kernels::Add<T>{at<T>(sum_->a), at<T>(sum_->b), at<T>(x_), elements_});
      each(device(), groups,
           kernels::AffineRelu<T>{at<T>(x_), scale_, shift_, at<T>(y_), nullptr, layout_, elements_,
                                  relu_ && added == nullptr});
      if (added != nullptr) each(device(), groups, kernels::Add<T>{at<T>(y_), added, at<T>(y_), elements_, relu_});
    });
  }

  /// dresidual = dy where the ReLU was open, dx = scale*dresidual + addend.
  void backward_affine() {
    with_storage(type_, [&](auto type) {
      using T = decltype(type);
      const std::int64_t groups = kernels::groups(elements_);
      T* const dx = at<T>(dx_);
      T* const dresidual = relu_ && dresidual_ == -1 ? dx : at<T>(relu_ ? dresidual_ : dy_);
      if (relu_) each(device(), groups, kernels::ReluGradient<T>{at<T>(back_y_), at<T>(dy_), dresidual, elements_});
      each(device(), groups,
           kernels::AffineReluGradient<T>{dresidual, nullptr, scale_, nullptr, dx, layout_, elements_, false});
      if (addend_ != -1) each(device(), groups, kernels::Add<T>{at<T>(addend_), dx, dx, elements_});
    });
  }

  const DType type_;
  const Layout layout_;
  const std::int64_t elements_;
  const float* const unscale_;
  std::unique_ptr<BatchNorm> norm_;                                  ///< null: its parameters always stand still
  float *mean_ = nullptr, *variance_ = nullptr, *dgamma_ = nullptr;  ///< dgamma_: then dbeta
  const float *scale_ = nullptr, *shift_ = nullptr;                  ///< [c] where its parameters stand still
  std::optional<TrainingLowering::Addition> sum_;
  int residual_ = -1;  ///< value
  bool relu_ = false;
  Buffer x_ = -1, added_ = -1, y_ = -1, dy_ = -1, dx_ = -1, dresidual_ = -1, addend_ = -1;
  Buffer back_x_ = -1, back_y_ = -1, again_ = -1, again_x_ = -1, again_added_ = -1;
};

}  // namespace

std::unique_ptr<FrozenOperation> frozen_affine(FrozenLowering& lowering, int node) {
  return std::make_unique<FrozenAffine>(lowering, node);
}

const NodeOperations norm_operations = {frozen_affine, make_training<TrainingBatchNorm>};

}  // namespace dat
