#include "convolution.hpp"

#include <algorithm>
#include <cassert>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/trials.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

/// The convolution that is planned for `s`: where more is padded below and at the right, which no call of cuDNN's older
/// part can say, it is that of a copy of x with the rows and columns of zeros.
[[nodiscard]] ConvSpec bordered(ConvSpec s) {
  if (s.extra_pad == 0) return s;
  s.h += s.extra_pad;
  s.w += s.extra_pad;
  s.extra_pad = 0;
  s.relu_input = s.other_gradient = false;
  return s;
}

/// Convolutions in NHWC, weights as [out][kh][kw][in]: each pass by the plan that trials have chosen (choose_plan).
class CudaConv2d final : public Conv2d {
 public:
  CudaConv2d(CudaBackend& backend, const ConvSpec& of)
      : backend_(backend), spec_(bordered(of)), border_(of.extra_pad), channels_(PassSpec{of}.channels()) {
    const ConvSpec& spec = spec_;
    assert(border_ == 0 || !spec.image);
    require(backend.refuses(spec.storage).empty(), ExitCode::usage, backend.refuses(spec.storage));
    // Fast kernels take 16 bytes at once: pixels and the tensors in the flat block of parameters begin at multiples.
    const int piece = PassSpec{spec}.piece();
    require(spec.c_out % piece == 0 && (spec.image || spec.c_in % piece == 0), ExitCode::usage,
            "the CUDA backend works on ", piece, " channels at a time: choose a --width that is a multiple of ", piece);
    forward_ = plan(Pass::forward);
    if (!spec.image) data_ = plan(Pass::data);
    if (spec.relu_input) relu_ = choose_relu_plan(backend, spec, data_);
    if (relu_ != nullptr) backend.request_scratch(relu_->scratch_bytes());
    if (!spec.frozen) weights_ = plan(Pass::weights);
    if (spec.image) products_ = plan_products();
    if (PassSpec{spec}.packed()) packed_ = backend.allocate(weight_count() * size_of(spec.storage), "packed weights");
    if (spec.frozen) {
      bias_ = backend.allocate_floats(spec.c_out, "folded bias");
      rounded_bias_ = spec.storage == DType::f32
                          ? bias_
                          : backend.allocate(std::size_t(spec.c_out) * size_of(spec.storage), "folded bias");
    }
    if ((data_ != nullptr && data_->rotated_weights()) || (relu_ != nullptr && relu_->rotated_weights()))
      rotated_ = backend.allocate(std::size_t(spec.c_in) * row() * size_of(spec.storage), "packed weights");
    gradient_offset_ = copy_offset_;
    if (channels_ != spec.c_in || border_ != 0)
      gradient_offset_ += aligned(std::size_t(spec.n) * spec.h * spec.w * channels_ * size_of(spec.storage));
    backend.request_scratch(gradient_offset_ +
                            (weights_ != nullptr && packed_ != nullptr ? weight_count() * size_of(spec.storage) : 0));
  }

  void load(const float* weights, const float* scale, const float* bias) override {
    for (const kernels::FoldWeights& one : folds(weights, scale, bias)) each(backend_.device(), one.size(), one);
  }
  /// Work of load(), which the caller queues; the place of the weights is taken over.
  [[nodiscard]] std::vector<kernels::FoldWeights> folds(const float* weights, const float* scale, const float* bias) {
    std::vector<kernels::FoldWeights> all;
    const auto fold = [&](void* to, int in_padded, int row, bool rotate) {
      if (to != nullptr)
        all.push_back({weights, scale, to, spec_.c_out, spec_.c_in, spec_.kernel * spec_.kernel, in_padded, row, rotate,
                       spec_.storage});
    };
    fold(packed_, channels_, spec_.kernel * spec_.kernel * channels_, false);
    fold(rotated_, spec_.c_in, row(), true);
    fold(products_.weights, spec_.c_in, products_.row, false);
    const auto copy = [&](void* to, DType type) {
      all.push_back({bias, nullptr, to, 1, spec_.c_out, 1, spec_.c_out, spec_.c_out, false, type});
    };
    if (bias != nullptr) copy(bias_, DType::f32);
    if (bias != nullptr && rounded_bias_ != bias_) copy(rounded_bias_, spec_.storage);
    if (packed_ == nullptr) master_ = weights;
    return all;
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
    if (border_ == 0) return run(*data_, {.dy = dy, .w = weights(*data_), .result = dx, .accumulate = accumulate});
    run(*data_, {.dy = dy, .w = weights(*data_), .result = copy()});
    fit(copy(), spec_.h, dx, spec_.h - border_, accumulate);
  }
  [[nodiscard]] bool backward_data_accumulates() const override { return true; }

  void backward_relu(const void* dy, const void* x, const void* other, void* dx) override {
    assert((other != nullptr) == spec_.other_gradient);
    ++backend_.counters.conv_backward_data;
    run(*relu_, {.x = x, .dy = dy, .w = weights(*relu_), .other = other, .result = dx});
  }
  [[nodiscard]] bool backward_relu_pays() const override { return relu_ != nullptr; }
  [[nodiscard]] bool backward_data_masks() const override { return false; }

  /// Computes a matrix product and a sum over taps: cuDNN has nothing fast for an image's few channels, and the sum can
  /// end with the attack's step. Some images at a time, so that the products stay in the cache.
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

  /// Adds up over micro-batches with our own kernel in 16 bits, where sums are f32 within the library only.
  void backward_weights(const void* x, const void* dy, float* dw, bool accumulate, const float* factor) override {
    ++backend_.counters.conv_backward_weights;
    if (packed_ == nullptr) {
      assert(factor == nullptr);
      return run(*weights_, {.x = padded(x), .dy = dy, .result = dw, .accumulate = accumulate});
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
    if (spec_.image) all += " / product and sum";
    if (weights_ != nullptr) all += " / " + weights_->name();
    return all;
  }

 private:
  [[nodiscard]] std::size_t weight_count() const {
    return std::size_t(spec_.c_out) * spec_.kernel * spec_.kernel * channels_;
  }
  /// Room for a copy of x, in scratch memory.
  [[nodiscard]] void* copy() const { return static_cast<char*>(backend_.scratch()) + copy_offset_; }
  /// Square activations of another size, as kernels::FitPixels makes them.
  void fit(const void* from, int from_size, void* to, int size, bool add) const {
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      const int more = spec_.w - spec_.h;
      each(backend_.device(), std::int64_t{spec_.n} * size * (size + more) * kernels::groups(spec_.c_in),
           kernels::FitPixels<T>{static_cast<const T*>(from), static_cast<T*>(to), spec_.c_in, from_size,
                                 from_size + more, size, size + more, add});
    });
  }
  /// Images with zero channels, where they have some; x with the border that it has.
  [[nodiscard]] const void* padded(const void* x) const {
    if (border_ != 0) {
      fit(x, spec_.h - border_, copy(), spec_.h, false);
      return copy();
    }
    if (channels_ == spec_.c_in) return x;
    void* const to = copy();
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), std::int64_t{spec_.n} * spec_.h * spec_.w,
           kernels::PadImage<T>{static_cast<const float*>(x), static_cast<T*>(to), spec_.c_in, channels_});
    });
    return to;
  }
  [[nodiscard]] int row() const { return spec_.kernel * spec_.kernel * spec_.c_out; }  // row of rotated weights
  [[nodiscard]] const void* weights() const { return packed_ != nullptr ? packed_ : master_; }
  [[nodiscard]] const void* weights(const PassPlan& gradient) const {
    return gradient.rotated_weights() ? rotated_ : weights();
  }

  [[nodiscard]] std::shared_ptr<const PassPlan> plan(Pass pass) {
    auto chosen = choose_plan(backend_, {spec_, pass});
    copy_offset_ = std::max(copy_offset_, aligned(chosen->scratch_bytes()));
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
    constexpr int kAligned = 8;  // numbers at whose multiples rows begin
    p.row = dat::aligned(spec_.kernel * spec_.kernel * spec_.c_in, kAligned);
    const std::size_t image = std::size_t(spec_.h_out()) * spec_.w_out() * p.row * sizeof(float);
    // Beside dy, as large in 16 bits at 64 channels, in the near half of a 40 or 50 MiB L2 cache (A100, H200).
    constexpr std::size_t kCached = 8U << 20U;
    constexpr int kFewest = 4;  // launches would take longer than the work
    p.images = std::min(std::max(static_cast<int>(kCached / image), kFewest), spec_.n);
    p.weights = backend_.allocate(std::size_t(spec_.c_out) * p.row * size_of(spec_.storage), "packed weights");
    backend_.request_scratch(p.images * image);
    return p;
  }

  CudaBackend& backend_;
  const ConvSpec spec_;
  const int border_;  ///< rows and columns of zeros, in a copy of x
  const int channels_;
  std::shared_ptr<const PassPlan> forward_, data_, relu_, weights_;  ///< null: not asked for, or none pays
  Products products_;
  std::size_t copy_offset_ = 0, gradient_offset_ = 0;  ///< places of a copy of x and of dw, after any plan's scratch
  const float* master_ = nullptr;                      ///< parameters, where weights are not packed
  void *packed_ = nullptr, *rotated_ = nullptr;
  float* bias_ = nullptr;
  void* rounded_bias_ = nullptr;
};

/// The weights of many convolutions, folded in one launch.
class Folds final : public Backend::Recording {
 public:
  Folds(CudaBackend& backend, const std::vector<kernels::FoldWeights>& all) : backend_(backend) {
    std::vector<Chunk> chunks;
    for (std::size_t k = 0; k < all.size(); ++k)
      for (std::int64_t at = 0, size = all[k].size(); at < size; at += kChunk)
        chunks.push_back(
            {at, static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, size - at)), static_cast<std::int32_t>(k)});
    if (chunks.empty()) return;
    const auto on_device = [&](const auto& table) {
      const std::size_t bytes = table.size() * sizeof table[0];
      void* const to = backend.allocate(bytes, "packed weights");
      backend.copy_to_device(to, table.data(), bytes);
      return to;
    };
    folds_ = static_cast<kernels::FoldWeights*>(on_device(all));
    chunks_ = {.data = static_cast<Chunk*>(on_device(chunks)), .count = static_cast<std::int32_t>(chunks.size())};
  }
  void replay() override { each(backend_.device(), chunks_, kernels::FoldAllWeights{folds_}); }

 private:
  CudaBackend& backend_;
  const kernels::FoldWeights* folds_ = nullptr;
  Chunks chunks_;
};

}  // namespace

std::unique_ptr<Conv2d> CudaBackend::conv2d(const ConvSpec& spec) { return std::make_unique<CudaConv2d>(*this, spec); }

std::unique_ptr<Backend::Recording> CudaBackend::loads(std::vector<Load> all) {
  std::vector<kernels::FoldWeights> folds;
  for (const auto& [conv, weights, scale, bias] : all) {
    const auto more = static_cast<CudaConv2d*>(conv)->folds(weights, scale, bias);
    folds.insert(folds.end(), more.begin(), more.end());
  }
  return std::make_unique<Folds>(*this, folds);
}

}  // namespace dat::cuda
