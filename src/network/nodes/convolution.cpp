#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// y = relu(norm(conv(x)) + residual), each of the three where it follows: batch norm is folded into the weights, the
/// residual is added and the ReLU applied by the convolution itself; and so is a batch norm with a ReLU before it,
/// where that has been left to it.
class FrozenConvolution final : public FrozenOperation {
 public:
  FrozenConvolution(FrozenLowering& lowering, int first)
      : FrozenOperation(lowering, first), type_(lowering.storage), of_images_(lowering.node(input()).makes_images()) {
    if (lowering.fuse(result_, Op::batch_norm)) norm_ = lowering.folded_norm(result_);
    residual_ = lowering.other_addend(result_);
    const bool adds = residual_ != -1;
    if (adds) lowering.fuse(result_, Op::add);
    const bool relu = lowering.fuse(result_, Op::relu);
    if (relu) lowering.made_by_relu(result_);

    ConvSpec spec = conv_spec(lowering, node_);
    spec.frozen = true;
    spec.accumulate = adds;
    spec.keeps_residual = adds && lowering.kept(residual_);
    spec.relu = relu;
    spec.relu_input = !of_images_ && residual_ != input() && lowering.may_go_through_relu(input(), first);
    spec.other_gradient = spec.relu_input && lowering.readers(input()).size() > 1;
    spec.storage = type_;
    conv_ = model_.backend.conv2d(spec);
    if (conv_->backward_relu_pays()) lowering.keep(input());

    normed_ = lowering.take_norm(input());
    x_ = normed_ ? normed_->x : lowering.read(input());
    if (adds) {
      // The residual is added in place, to a copy where it is still needed.
      const Buffer residual = lowering.read(residual_);
      if (spec.keeps_residual)
        kept_ = residual;
      else if (lowering.read_later(residual_) || residual == x_)
        copied_ = residual;
      else
        lowering.make_in(y_ = residual, result_, type_);
    }
    if (y_ == -1) y_ = lowering.make(result_, type_);
    elements_ = lowering.elements(result_);
    if (relu) bits_ = lowering.fresh(kernels::groups(elements_), DType::f16);  // one word of 16 bits each
  }

  void plan_backward(FrozenLowering& lowering) override {
    dy_ = lowering.arriving(result_);
    if (dy_.through_relu) bits_ = -1;  // nobody asks for them
    lowering.touch(bits_);
    // The convolution masks what it reads; a residual that takes over the gradient takes the mask with it, if it has no
    // other gradient yet.
    masks_inside_ = dy_.extra == -1 && !of_images_ && conv_->backward_data_masks() && residual_ != input() &&
                    (residual_ == -1 || !lowering.has_gradient(residual_));
    if (conv_->backward_relu_pays() && lowering.one_part_missing(input())) {
      dx_ = lowering.fresh(lowering.elements(input()), lowering.type(input()));
      other_ = lowering.go_through_relu(input(), dx_);
      through_relu_ = true;
    } else if (!of_images_) {
      accumulates_ = lowering.has_gradient(input()) && conv_->backward_data_accumulates();
      if (accumulates_) {
        dx_ = lowering.add_to(input(), conv_->backward_data_masks() ? &dx_bits_ : nullptr);
      } else {
        dx_ = lowering.fresh(lowering.elements(input()), lowering.type(input()));
        lowering.contribute(input(), dx_);
      }
    }
    if (residual_ != -1) lowering.contribute(residual_, dy_.main, masks_inside_ ? bits_ : -1);
  }

  void want(int samples) override {
    FrozenOperation::want(samples);
    conv_->want(samples);
  }

  void load(std::vector<Backend::Load>& all) override {
    all.push_back({conv_.get(), model_.values(node_.weight), norm_.scale, norm_.shift});
  }

  void forward(const float* image) override {
    if (copied_ != -1) add(device(), type_, at<void>(copied_), nullptr, at<void>(y_), wanted(elements_));
    const void* x = x_ != -1 ? at<void>(x_) : image;
    if (normed_)
      conv_->forward_of_norm(x, {normed_->scale, normed_->shift, at<std::uint16_t>(normed_->bits)}, at<void>(y_),
                             at<std::uint16_t>(bits_));
    else if (kept_ != -1)
      conv_->forward(x, at<void>(kept_), at<void>(y_), at<std::uint16_t>(bits_));
    else
      conv_->forward(x, at<void>(y_), at<std::uint16_t>(bits_));
  }

  void backward(float* image_gradient, const PgdUpdate& update) override {
    gather(dy_, masks_inside_ ? -1 : bits_);
    if (of_images_)
      conv_->backward_image(at<void>(dy_.main), image_gradient, update);
    else if (through_relu_)
      conv_->backward_relu(at<void>(dy_.main), at<void>(x_), at<void>(other_), at<void>(dx_));
    else
      conv_->backward_data(at<void>(dy_.main), at<void>(dx_), accumulates_,
                           {at<std::uint16_t>(masks_inside_ ? bits_ : -1), at<std::uint16_t>(dx_bits_)});
  }

  [[nodiscard]] std::string implementation() const override {
    return model_.parameters.segments[static_cast<std::size_t>(node_.weight)].name + ": " + conv_->implementation();
  }

 private:
  const DType type_;
  const bool of_images_;  ///< the images themselves (x_ is -1), or normalized ones
  FoldedNorm norm_;
  std::optional<FrozenLowering::Norm> normed_;  ///< x is not there yet
  int residual_ = -1;                           ///< value
  std::int64_t elements_ = 0;
  std::unique_ptr<Conv2d> conv_;
  Buffer x_ = -1, copied_ = -1, kept_ = -1, y_ = -1, bits_ = -1, dx_ = -1, dx_bits_ = -1, other_ = -1;
  Gradient dy_;
  bool masks_inside_ = false, accumulates_ = false, through_relu_ = false;
};

class TrainingConvolution final : public TrainingOperation {
 public:
  TrainingConvolution(TrainingLowering& lowering, int first)
      : TrainingOperation(lowering, first),
        of_images_(lowering.node(input()).makes_images()),
        unscale_(lowering.arrays.unscale()) {
    x_ = lowering.read(input());
    y_ = lowering.make(result_, lowering.storage);
    ConvSpec spec = conv_spec(lowering, node_);
    spec.storage = lowering.storage;
    conv_ = model_.backend.conv2d(spec);
  }

  void plan_backward(TrainingLowering& lowering) override {
    back_x_ = lowering.again(input(), node_.weight);
    dy_ = lowering.arriving(result_).buffer;
    if (of_images_) return;
    if (conv_->backward_data_accumulates()) dx_ = lowering.take_owned(input());
    adds_ = dx_ != -1;
    if (!adds_) dx_ = lowering.fresh(lowering.elements(input()), lowering.storage);
    lowering.contribute(input(), dx_);
  }

  void load(std::vector<Backend::Load>& all) override {
    all.push_back({conv_.get(), model_.values(node_.weight), nullptr, nullptr});
  }

  void forward(const float* image) override { conv_->forward(x_ != -1 ? at(x_) : image, at<void>(y_), nullptr); }

  void backward_weights(const WantedGradients& wanted) override {
    conv_->backward_weights(back_x_ != -1 ? at(back_x_) : wanted.image, at<void>(dy_), wanted.dw, wanted.accumulate,
                            unscale_);
  }

  void backward(const WantedGradients& wanted) override {
    if (!wanted.dx) return;
    if (of_images_)
      conv_->backward_image(at<void>(dy_), wanted.image_gradient, {}, unscale_);
    else
      conv_->backward_data(at<void>(dy_), at<void>(dx_), adds_);
  }

 private:
  const bool of_images_;  ///< the images themselves (x_ is -1), or normalized ones
  const float* const unscale_;
  std::unique_ptr<Conv2d> conv_;
  bool adds_ = false;  ///< its dx to what other readers have contributed
  Buffer x_ = -1, back_x_ = -1, y_ = -1, dy_ = -1, dx_ = -1;
};

}  // namespace

const NodeOperations convolution_operations = {make_frozen<FrozenConvolution>, make_training<TrainingConvolution>};

}  // namespace dat
