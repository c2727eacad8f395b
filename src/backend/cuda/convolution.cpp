#include "convolution.hpp"

#include <algorithm>
#include <cassert>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/trials.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

constexpr float kOne = 1, kZero = 0;

/// Convolutions in NHWC, weights as [out][kh][kw][in]: each pass by the plan that trials have chosen (choose_plan).
class CudaConv2d final : public Conv2d {
 public:
  CudaConv2d(CudaBackend& backend, const ConvSpec& spec)
      : backend_(backend), spec_(spec), channels_(PassSpec{spec}.channels()) {
    require(backend.refuses(spec.storage).empty(), ExitCode::usage, backend.refuses(spec.storage));
    // Fast kernels take 16 bytes at once: pixels and the tensors in the flat block of parameters begin at multiples.
    const int piece = PassSpec{spec}.piece();
    require(spec.c_out % piece == 0 && (spec.image || spec.c_in % piece == 0), ExitCode::usage,
            "the CUDA backend works on ", piece, " channels at a time: choose a --width that is a multiple of ", piece);
    forward_ = plan(Pass::forward);
    if (spec.input_gradient && !spec.image) data_ = plan(Pass::data);
    if (spec.input_gradient && spec.relu_input) relu_ = choose_relu_plan(backend, spec, data_);
    if (relu_ != nullptr) backend.request_scratch(relu_->scratch_bytes());
    if (!spec.frozen) weights_ = plan(Pass::weights);
    if (spec.image && spec.input_gradient) products_ = plan_products();
    if (PassSpec{spec}.packed()) packed_ = backend.allocate(weight_count() * size_of(spec.storage), "packed weights");
    if (spec.frozen) {
      bias_ = backend.allocate_floats(spec.c_out, "folded bias");
      rounded_bias_ = backend.allocate(std::size_t(spec.c_out) * size_of(spec.storage), "folded bias");
    }
    if ((data_ != nullptr && data_->rotated_weights()) || (relu_ != nullptr && relu_->rotated_weights()))
      rotated_ = backend.allocate(std::size_t(spec.c_in) * row() * size_of(spec.storage), "packed weights");
    image_offset_ = gradient_offset_ =
        aligned(std::max(forward_->scratch_bytes(), weights_ != nullptr ? weights_->scratch_bytes() : 0));
    if (channels_ != spec.c_in)
      gradient_offset_ += aligned(std::size_t(spec.n) * spec.h * spec.w * channels_ * size_of(spec.storage));
    backend.request_scratch(gradient_offset_ +
                            (weights_ != nullptr && packed_ != nullptr ? weight_count() * size_of(spec.storage) : 0));
  }

  void load(const float* weights, const float* scale, const float* bias) override {
    const int taps = spec_.kernel * spec_.kernel;
    const auto fold = [&](auto type, void* to, int first, int in_padded, int row, bool rotate) {
      using T = decltype(type);
      each(backend_.device(), std::int64_t{first} * row,
           kernels::FoldWeights<T>{weights, scale, static_cast<T*>(to), spec_.c_out, spec_.c_in, taps, in_padded, row,
                                   rotate});
    };
    with_storage(spec_.storage, [&](auto type) {
      if (packed_ != nullptr) fold(type, packed_, spec_.c_out, channels_, taps * channels_, false);
      if (rotated_ != nullptr) fold(type, rotated_, spec_.c_in, spec_.c_in, row(), true);
      if (products_.weights != nullptr) fold(type, products_.weights, spec_.c_out, spec_.c_in, products_.row, false);
    });
    if (bias != nullptr) {
      each(backend_.device(), spec_.c_out, kernels::Scale{bias, bias_, 1.0F, false});
      with_storage(spec_.storage, [&](auto type) {
        using T = decltype(type);
        each(backend_.device(), spec_.c_out,
             kernels::FoldWeights<T>{bias, nullptr, static_cast<T*>(rounded_bias_), 1, spec_.c_out, 1, spec_.c_out,
                                     spec_.c_out, false});
      });
    }
    if (packed_ == nullptr) master_ = weights;
  }

  void forward(const void* x, void* y, std::uint16_t* bits) override { forward(x, nullptr, y, bits); }

  void forward(const void* x, const void* residual, void* y, std::uint16_t* bits) override {
    assert((residual != nullptr) == spec_.keeps_residual);
    ++backend_.counters.conv_forward;
    run(*forward_, {.x = padded(x),
                    .w = weights(),
                    .bias = bias_,
                    .rounded_bias = rounded_bias_,
                    .other = residual,
                    .result = y,
                    .bits = bits,
                    .accumulate = spec_.accumulate && !spec_.keeps_residual});
  }

  void backward_data(const void* dy, void* dx, bool accumulate, [[maybe_unused]] const Masks& masks) override {
    assert(masks.dy == nullptr && masks.dx == nullptr);
    ++backend_.counters.conv_backward_data;
    run(*data_, {.dy = dy, .w = weights(*data_), .result = dx, .accumulate = accumulate});
  }
  [[nodiscard]] bool backward_data_accumulates() const override { return true; }

  void backward_relu(const void* dy, const void* x, const void* other, void* dx) override {
    assert((other != nullptr) == spec_.other_gradient);
    ++backend_.counters.conv_backward_data;
    run(*relu_, {.x = x, .dy = dy, .w = weights(*relu_), .other = other, .result = dx});
  }
  [[nodiscard]] bool backward_relu_pays() const override { return relu_ != nullptr; }
  [[nodiscard]] bool backward_data_masks() const override { return false; }

  /// As a matrix product and a sum over taps: cuDNN has nothing fast for an image's few channels, and the sum can end
  /// with the attack's step. Some images at a time, so that the products stay in the cache.
  void backward_image(const void* dy, float* dx, const PgdUpdate& update, const float* factor) override {
    ++backend_.counters.conv_backward_data;
    const std::int64_t pixels = std::int64_t{spec_.h_out()} * spec_.w_out();
    const std::int64_t image = std::int64_t{spec_.h} * spec_.w * spec_.c_in;
    auto* products = static_cast<float*>(backend_.scratch());
    const auto compute =
        spec_.storage == DType::f32 && backend_.tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cudaDataType_t type = cuda_type(spec_.storage);
    for (int first = 0; first < spec_.n; first += products_.images) {
      const int count = std::min(products_.images, spec_.n - first);
      const auto* part = static_cast<const char*>(dy) + size_of(spec_.storage) * first * pixels * spec_.c_out;
      check(cublasGemmEx(backend_.cublas(), CUBLAS_OP_N, CUBLAS_OP_N, products_.row, static_cast<int>(count * pixels),
                         spec_.c_out, &kOne, products_.weights, type, products_.row, part, type, spec_.c_out, &kZero,
                         products, CUDA_R_32F, products_.row, compute, CUBLAS_GEMM_DEFAULT));
      PgdUpdate step = update;
      const std::int64_t at = first * image;
      if (step.x != nullptr) step = {step.x + at, step.eta + at, step.x_adv + at, step.alpha, step.eps};
      kernels::image_gradient(backend_.device(), count * image,
                              {products, dx + at, spec_.c_in, spec_.h, spec_.w, spec_.h_out(), spec_.w_out(),
                               spec_.kernel, spec_.stride, spec_.pad, products_.row, step, factor});
    }
  }

  /// In 16 bits sums are f32 within the library only, so that theirs over micro-batches are made here.
  void backward_weights(const void* x, const void* dy, float* dw, bool accumulate, const float* factor) override {
    ++backend_.counters.conv_backward_weights;
    if (packed_ == nullptr) {
      assert(factor == nullptr);
      return run(*weights_, {.x = x, .dy = dy, .result = dw, .accumulate = accumulate});
    }
    void* const gradient = static_cast<char*>(backend_.scratch()) + gradient_offset_;
    run(*weights_, {.x = padded(x), .dy = dy, .result = gradient});
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), std::int64_t{spec_.c_out} * spec_.kernel * spec_.kernel * spec_.c_in,
           kernels::TakeWeightGradient<T>{static_cast<const T*>(gradient), dw, spec_.c_in, channels_, factor,
                                          accumulate});
    });
  }

  [[nodiscard]] std::string implementation() const override {
    std::string all = forward_->name();
    if (data_ != nullptr) all += " / " + (relu_ != nullptr ? relu_ : data_)->name();
    if (spec_.image && spec_.input_gradient) all += " / product and sum";
    if (weights_ != nullptr) all += " / " + weights_->name();
    return all;
  }

 private:
  [[nodiscard]] std::size_t weight_count() const {
    return std::size_t(spec_.c_out) * spec_.kernel * spec_.kernel * channels_;
  }
  /// Images with zero channels, where they have some.
  [[nodiscard]] const void* padded(const void* x) const {
    if (channels_ == spec_.c_in) return x;
    void* const to = static_cast<char*>(backend_.scratch()) + image_offset_;
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), std::int64_t{spec_.n} * spec_.h * spec_.w,
           kernels::PadImage<T>{static_cast<const float*>(x), static_cast<T*>(to), spec_.c_in, channels_});
    });
    return to;
  }
  [[nodiscard]] int row() const { return spec_.kernel * spec_.kernel * spec_.c_out; }  // of rotated weights
  [[nodiscard]] const void* weights() const { return packed_ != nullptr ? packed_ : master_; }
  [[nodiscard]] const void* weights(const PassPlan& gradient) const {
    return gradient.rotated_weights() ? rotated_ : weights();
  }

  [[nodiscard]] std::shared_ptr<const PassPlan> plan(Pass pass) {
    auto chosen = choose_plan(backend_, {spec_, pass});
    backend_.request_scratch(chosen->scratch_bytes());
    backend_.request_zeros(chosen->zeros_bytes());
    return chosen;
  }
  void run(const PassPlan& plan, Operands operands) {
    operands.zeros = backend_.zeros();
    operands.scratch = backend_.scratch();
    check(plan.run(operands));
  }

  /// Products of pixels and taps for backward_image.
  struct Products {
    int row = 0, images = 0;  ///< numbers per pixel; images at a time
    void* weights = nullptr;  ///< [out][row]
  };
  [[nodiscard]] Products plan_products() {
    Products p;
    p.row = (spec_.kernel * spec_.kernel * spec_.c_in + 7) / 8 * 8;
    const std::size_t image = std::size_t(spec_.h_out()) * spec_.w_out() * p.row * sizeof(float);
    // Beside dy, as large in 16 bits at 64 channels, in the near half of a 40 or 50 MiB L2 cache (A100, H200).
    constexpr std::size_t kCached = 8U << 20U;
    p.images = std::clamp(static_cast<int>(kCached / image), 1, spec_.n);
    p.weights = backend_.allocate(std::size_t(spec_.c_out) * p.row * size_of(spec_.storage), "packed weights");
    backend_.request_scratch(p.images * image);
    return p;
  }

  CudaBackend& backend_;
  ConvSpec spec_;
  int channels_;
  std::shared_ptr<const PassPlan> forward_, data_, relu_, weights_;  ///< null: not asked for, or none pays
  Products products_;
  std::size_t image_offset_ = 0, gradient_offset_ = 0;  ///< in the scratch memory: images with channels added; dw
  const float* master_ = nullptr;                       ///< where weights are not packed: the parameters themselves
  void *packed_ = nullptr, *rotated_ = nullptr;
  float* bias_ = nullptr;
  void* rounded_bias_ = nullptr;
};

}  // namespace

std::unique_ptr<Conv2d> CudaBackend::conv2d(const ConvSpec& spec) { return std::make_unique<CudaConv2d>(*this, spec); }

}  // namespace dat::cuda
