#include "convolution.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "backend/cuda/backend.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

using Choice = CudaBackend::Choice;

constexpr const char* kForward[] = {"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING",
                                    "WINOGRAD",      "WINOGRAD_NONFUSED"};
constexpr const char* kData[] = {"ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"};
constexpr const char* kWeights[] = {"ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"};

template <std::size_t N>
[[nodiscard]] std::string algorithm_name(const char* const (&names)[N], int algorithm, cudnnMathType_t math) {
  std::string name = algorithm >= 0 && algorithm < static_cast<int>(N) ? names[algorithm] : std::to_string(algorithm);
  return math == CUDNN_TENSOR_OP_MATH ? name + " tensor" : name;
}

constexpr float kOne = 1, kZero = 0;
[[nodiscard]] const float* factor(bool accumulate) { return accumulate ? &kOne : &kZero; }

[[nodiscard]] std::string text(const ConvSpec& s) {
  return std::to_string(s.kernel) + "x" + std::to_string(s.kernel) +
         (s.stride > 1 ? " stride " + std::to_string(s.stride) : "") + ", " + std::to_string(s.c_in) + " to " +
         std::to_string(s.c_out) + " channels, " + std::to_string(s.n) + " of " + std::to_string(s.h) + "x" +
         std::to_string(s.w) + (s.image ? ", of images" : "") + (s.frozen ? ", frozen" : "") +
         (s.accumulate ? ", adding" : "") + (s.relu ? ", ReLU" : "") +
         (s.storage == DType::f16    ? ", f16"
          : s.storage == DType::bf16 ? ", bf16"
                                     : ", f32");
}

constexpr const char* kPassNames[] = {"forward", "input gradient", "weight gradient"};

/// Memory for trials, given back at their end.
class TrialMemory {
 public:
  explicit TrialMemory(cudaStream_t stream) : stream_(stream) {}
  ~TrialMemory() {
    (void)cudaStreamSynchronize(stream_);
    for (void* p : all_) (void)cudaFree(p);
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  [[nodiscard]] void* get(std::size_t bytes) {
    void* p = get_if_there(bytes);
    if (p == nullptr) check(cudaErrorMemoryAllocation);
    check(cudaMemsetAsync(p, 0, std::max<std::size_t>(bytes, 1), stream_));
    return p;
  }
  /// Null where there is not so much memory.
  [[nodiscard]] void* get_if_there(std::size_t bytes) {
    void* p = nullptr;
    const cudaError_t status = cudaMalloc(&p, std::max<std::size_t>(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(status);
    all_.push_back(p);
    return p;
  }

 private:
  cudaStream_t stream_;
  std::vector<void*> all_;
};

/// Convolutions by cuDNN in NHWC, weights as [out][kh][kw][in]. Every pass has candidates: cuDNN's algorithms, and for
/// the input gradient of a stride-1 convolution also those of a forward convolution of dy with rotated weights. At plan
/// time each is tried on random numbers, admitted only if its results are right, and timed; the fastest is taken
/// (--deterministic: the first right one that is deterministic, in cuDNN's own order).
class CudaConv2d final : public Conv2d {
 public:
  CudaConv2d(CudaBackend& backend, const ConvSpec& spec)
      : backend_(backend),
        spec_(spec),
        channels_(padded_channels(spec)),
        x_(nhwc(spec.storage, spec.n, channels_, spec.h, spec.w)),
        y_(nhwc(spec.storage, spec.n, spec.c_out, spec.h_out(), spec.w_out())),
        bias_desc_(nhwc(spec.storage, 1, spec.c_out, 1, 1)),
        w_(ohwi(spec.storage, spec.c_out, channels_, spec.kernel)),
        rotated_w_(ohwi(spec.storage, spec.c_in, spec.c_out, spec.kernel)),
        convolution_(convolution(spec.pad, spec.stride)),
        turned_(convolution(spec.kernel - 1 - spec.pad, 1)),
        activation_(activation(spec.relu)) {
    require(backend.refuses(spec.storage).empty(), ExitCode::usage, backend.refuses(spec.storage));
    require(spec.frozen || spec.storage == DType::f32, ExitCode::usage, "training convolutions are f32");
    // Fast kernels take 16 bytes at once: pixels and the tensors in the flat block of parameters begin at multiples.
    const int unit = static_cast<int>(16 / size_of(spec.storage));
    require(spec.c_out % unit == 0 && (spec.image || spec.c_in % unit == 0), ExitCode::usage,
            "the CUDA backend works on ", unit, " channels at a time: choose a --width that is a multiple of ", unit);
    for (Pass pass : {Pass::forward, Pass::data, Pass::weights})
      if (needed(pass)) choose(pass);
    if (spec.image && spec.input_gradient) products_ = plan_products();
    if (spec.frozen) {
      packed_ = backend.allocate(weight_count() * size_of(spec.storage), "packed weights");
      bias_ = backend.allocate_floats(spec.c_out, "folded bias");
      rounded_bias_ = backend.allocate(std::size_t(spec.c_out) * size_of(spec.storage), "folded bias");
    }
    if (data_.rotated)
      rotated_ = backend.allocate(std::size_t(spec.c_in) * row() * size_of(spec.storage), "packed weights");
    if (channels_ != spec.c_in) {
      image_offset_ = aligned(forward_.scratch);
      backend.request_scratch(image_offset_ +
                              std::size_t(spec.n) * spec.h * spec.w * channels_ * size_of(spec.storage));
    }
    for (const Choice* choice : {&forward_, &data_, &weights_}) backend.request_scratch(choice->scratch);
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
      store_bias(bias, rounded_bias_);
    }
    if (packed_ == nullptr) master_ = weights;
  }

  void forward(const void* x, void* y, std::uint16_t* bits) override {
    ++backend_.counters.conv_forward;
    if (channels_ != spec_.c_in) {
      void* padded = static_cast<char*>(backend_.scratch()) + image_offset_;
      with_storage(spec_.storage, [&](auto type) {
        using T = decltype(type);
        each(backend_.device(), std::int64_t{spec_.n} * spec_.h * spec_.w,
             kernels::PadImage<T>{static_cast<const float*>(x), static_cast<T*>(padded), spec_.c_in, channels_});
      });
      x = padded;
    }
    check(run_forward(forward_, x, weights(), bias_, rounded_bias_, y, bits, backend_.scratch()));
  }

  void backward_data(const void* dy, void* dx, bool accumulate, const Masks&) override {
    ++backend_.counters.conv_backward_data;
    check(run_data(data_, dy, data_.rotated ? rotated_ : weights(), dx, accumulate, backend_.scratch()));
  }
  [[nodiscard]] bool backward_data_accumulates() const override { return true; }
  [[nodiscard]] bool backward_data_masks() const override { return false; }

  /// As a matrix product and a sum over taps: cuDNN has nothing fast for an image's few channels, and the sum can end
  /// with the attack's step. Some images at a time, so that the products stay in the cache.
  void backward_image(const void* dy, float* dx, const PgdUpdate& update) override {
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
                               spec_.kernel, spec_.stride, spec_.pad, products_.row, step});
    }
  }

  void backward_weights(const float* x, const float* dy, float* dw, bool accumulate) override {
    ++backend_.counters.conv_backward_weights;
    check(run_weights(weights_, x, dy, dw, accumulate, backend_.scratch()));
  }

  [[nodiscard]] std::string implementation() const override {
    std::string all = forward_.name;
    if (needed(Pass::data)) all += " / " + data_.name;
    if (spec_.image && spec_.input_gradient) all += " / product and sum";
    if (needed(Pass::weights)) all += " / " + weights_.name;
    return all;
  }

 private:
  using Pass = kernels::ConvolutionPass;

  /// Frozen images get zero channels up to 16 bytes per pixel: what tensor cores load at once.
  [[nodiscard]] static int padded_channels(const ConvSpec& s) {
    const int unit = static_cast<int>(16 / size_of(s.storage));
    return s.image && s.frozen ? (s.c_in + unit - 1) / unit * unit : s.c_in;
  }
  /// Products in f32, no TF32.
  [[nodiscard]] bool strict() const { return spec_.storage == DType::f32 && !backend_.tf32(); }
  [[nodiscard]] static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  [[nodiscard]] bool needed(Pass pass) const {
    return pass == Pass::forward || (pass == Pass::data ? spec_.input_gradient && !spec_.image : !spec_.frozen);
  }
  [[nodiscard]] int row() const { return spec_.kernel * spec_.kernel * spec_.c_out; }  // of rotated weights
  [[nodiscard]] std::size_t weight_count() const {
    return std::size_t(spec_.c_out) * spec_.kernel * spec_.kernel * channels_;
  }
  [[nodiscard]] std::int64_t y_count() const {
    return std::int64_t{spec_.n} * spec_.c_out * spec_.h_out() * spec_.w_out();
  }
  [[nodiscard]] std::int64_t x_count() const { return std::int64_t{spec_.n} * channels_ * spec_.h * spec_.w; }
  [[nodiscard]] const void* weights() const { return packed_ != nullptr ? packed_ : master_; }

  [[nodiscard]] cudnnStatus_t run_forward(const Choice& c, const void* x, const void* w, const float* bias,
                                          const void* rounded_bias, void* y, std::uint16_t* bits, void* scratch) {
    const auto algorithm = static_cast<cudnnConvolutionFwdAlgo_t>(c.algorithm);
    check(cudnnSetConvolutionMathType(convolution_, c.math));
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (c.fused)
      status = cudnnConvolutionBiasActivationForward(backend_.cudnn(), &kOne, x_, x, w_, w, convolution_, algorithm,
                                                     scratch, c.scratch, factor(spec_.accumulate), y_, y, bias_desc_,
                                                     rounded_bias, activation_, y_, y);
    else
      status = cudnnConvolutionForward(backend_.cudnn(), &kOne, x_, x, w_, w, convolution_, algorithm, scratch,
                                       c.scratch, factor(spec_.accumulate), y_, y);
    if (status != CUDNN_STATUS_SUCCESS || !spec_.frozen) return status;
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      auto* out = static_cast<T*>(y);
      const std::int64_t n = y_count();
      if (!c.fused)
        each(backend_.device(), kernels::groups(n),
             kernels::AffineRelu<T>{out,
                                    nullptr,
                                    bias,
                                    out,
                                    bits,
                                    {spec_.c_out, spec_.h_out(), spec_.w_out(), spec_.c_out},
                                    n,
                                    spec_.relu});
      else if (bits != nullptr)
        each(backend_.device(), kernels::groups(n), kernels::MaskFromRelu<T>{out, bits, n});
    });
    return status;
  }

  [[nodiscard]] cudnnStatus_t run_data(const Choice& c, const void* dy, const void* w, void* dx, bool accumulate,
                                       void* scratch) {
    if (c.rotated) {
      check(cudnnSetConvolutionMathType(turned_, c.math));
      return cudnnConvolutionForward(backend_.cudnn(), &kOne, y_, dy, rotated_w_, w, turned_,
                                     static_cast<cudnnConvolutionFwdAlgo_t>(c.algorithm), scratch, c.scratch,
                                     factor(accumulate), x_, dx);
    }
    check(cudnnSetConvolutionMathType(convolution_, c.math));
    return cudnnConvolutionBackwardData(backend_.cudnn(), &kOne, w_, w, y_, dy, convolution_,
                                        static_cast<cudnnConvolutionBwdDataAlgo_t>(c.algorithm), scratch, c.scratch,
                                        factor(accumulate), x_, dx);
  }

  [[nodiscard]] cudnnStatus_t run_weights(const Choice& c, const void* x, const void* dy, void* dw, bool accumulate,
                                          void* scratch) {
    check(cudnnSetConvolutionMathType(convolution_, c.math));
    return cudnnConvolutionBackwardFilter(backend_.cudnn(), &kOne, x_, x, y_, dy, convolution_,
                                          static_cast<cudnnConvolutionBwdFilterAlgo_t>(c.algorithm), scratch, c.scratch,
                                          factor(accumulate), w_, dw);
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

  [[nodiscard]] Choice& choice(Pass pass) {
    return pass == Pass::forward ? forward_ : pass == Pass::data ? data_ : weights_;
  }

  /// cuDNN's algorithms for one pass, in its own order of preference.
  template <class Perf, class Get>
  void list(std::vector<Choice>& all, Get get, const char* suffix, const std::function<std::string(const Perf&)>& name,
            bool rotated) const {
    constexpr int kMost = 16;
    Perf found[kMost];
    int count = 0;
    if (get(kMost, &count, found) != CUDNN_STATUS_SUCCESS) return;
    for (const Perf& perf : std::vector<Perf>(found, found + count)) {
      if (perf.status != CUDNN_STATUS_SUCCESS || perf.memory > backend_.scratch_limit()) continue;
      if (backend_.deterministic() && perf.determinism != CUDNN_DETERMINISTIC) continue;
      Choice c;
      c.algorithm = static_cast<int>(perf.algo);
      c.math = strict() ? CUDNN_FMA_MATH : perf.mathType;
      c.scratch = perf.memory;
      c.rotated = rotated;
      c.name = name(perf) + suffix;
      all.push_back(c);
    }
  }

  [[nodiscard]] std::vector<Choice> candidates(Pass pass) const {
    // f32 without TF32; or what the chip multiplies fastest, with sums in f32.
    const cudnnMathType_t math = spec_.storage != DType::f32 ? CUDNN_TENSOR_OP_MATH
                                 : strict()                  ? CUDNN_FMA_MATH
                                                             : CUDNN_DEFAULT_MATH;
    check(cudnnSetConvolutionMathType(convolution_, math));
    check(cudnnSetConvolutionMathType(turned_, math));
    std::vector<Choice> all;
    const auto forward = [&](const TensorDesc& from, const FilterDesc& w, const ConvolutionDesc& conv,
                             const TensorDesc& to, const char* suffix, bool rotated) {
      using Perf = cudnnConvolutionFwdAlgoPerf_t;
      list<Perf>(
          all,
          [&](int most, int* count, Perf* found) {
            return cudnnGetConvolutionForwardAlgorithm_v7(backend_.cudnn(), from, w, conv, to, most, count, found);
          },
          suffix, [](const Perf& p) { return algorithm_name(kForward, p.algo, p.mathType); }, rotated);
    };
    if (pass == Pass::forward) {
      forward(x_, w_, convolution_, y_, "", false);
      if (spec_.frozen) {
        std::vector<Choice> both;
        for (const Choice& plain : all) {
          // cuDNN applies the identity with one algorithm only.
          if (spec_.relu || plain.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
            both.push_back(plain);
            both.back().fused = true;
            both.back().name += " fused";
          }
          both.push_back(plain);
        }
        all = both;
      }
    } else if (pass == Pass::data) {
      using Perf = cudnnConvolutionBwdDataAlgoPerf_t;
      list<Perf>(
          all,
          [&](int most, int* count, Perf* found) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(backend_.cudnn(), w_, y_, convolution_, x_, most, count,
                                                               found);
          },
          "", [](const Perf& p) { return algorithm_name(kData, p.algo, p.mathType); }, false);
      if (spec_.stride == 1 && spec_.frozen) forward(y_, rotated_w_, turned_, x_, " rotated", true);
    } else {
      using Perf = cudnnConvolutionBwdFilterAlgoPerf_t;
      list<Perf>(
          all,
          [&](int most, int* count, Perf* found) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(backend_.cudnn(), x_, y_, convolution_, w_, most,
                                                                 count, found);
          },
          "", [](const Perf& p) { return algorithm_name(kWeights, p.algo, p.mathType); }, false);
    }
    return all;
  }

  void choose(Pass pass) {
    const std::string key = text(spec_) + ", " + kPassNames[static_cast<int>(pass)];
    auto known = backend_.choices.find(key);
    if (known == backend_.choices.end()) known = backend_.choices.emplace(key, try_all(pass)).first;
    choice(pass) = known->second;
  }

  [[nodiscard]] Choice try_all(Pass pass) {
    return with_storage(spec_.storage, [&](auto type) { return try_all_in<decltype(type)>(pass); });
  }

  template <class T>
  [[nodiscard]] Choice try_all_in(Pass pass) {
    constexpr int kSamples = 512;
    TrialMemory memory(backend_.stream());
    const auto array = [&](std::int64_t count) {
      return static_cast<T*>(memory.get(static_cast<std::size_t>(count) * sizeof(T)));
    };
    std::uint32_t key = 1;
    const auto random = [&](std::int64_t count) {
      T* a = array(count);
      each(backend_.device(), (count + 3) / 4, kernels::RandomFill<T>{a, count, key++});
      return a;
    };
    const auto weights = static_cast<std::int64_t>(weight_count());
    const bool forward = pass == Pass::forward, data = pass == Pass::data;
    T* x = data ? nullptr : random(x_count());
    T* dy = forward ? nullptr : random(y_count());
    T* result = forward ? array(y_count()) : data ? array(x_count()) : array(weights);
    T* z = forward && spec_.accumulate ? random(y_count()) : nullptr;
    T* w = nullptr;
    void* rotated = nullptr;
    if (forward || data) {
      auto* master = static_cast<float*>(memory.get(static_cast<std::size_t>(weights) * sizeof(float)));
      each(backend_.device(), (weights + 3) / 4, kernels::RandomFill<float>{master, weights, key++});
      w = array(weights);
      const int taps = spec_.kernel * spec_.kernel;
      each(backend_.device(), weights,
           kernels::FoldWeights<T>{master, nullptr, w, spec_.c_out, channels_, taps, channels_, taps * channels_,
                                   false});
      if (data) {
        rotated = array(weights);
        each(backend_.device(), weights,
             kernels::FoldWeights<T>{master, nullptr, static_cast<T*>(rotated), spec_.c_out, spec_.c_in, taps,
                                     spec_.c_in, row(), true});
      }
    }
    auto* bias = static_cast<float*>(memory.get(static_cast<std::size_t>(spec_.c_out) * sizeof(float)));
    each(backend_.device(), (spec_.c_out + 3) / 4, kernels::RandomFill<float>{bias, spec_.c_out, key++});
    std::uint16_t* bits = nullptr;
    if (forward && spec_.relu)
      bits = static_cast<std::uint16_t*>(
          memory.get(static_cast<std::size_t>(kernels::groups(y_count())) * sizeof(std::uint16_t)));
    auto* rounded_bias = array(spec_.c_out);
    store_bias(bias, rounded_bias);
    auto* error = static_cast<float*>(memory.get(3 * kSamples * sizeof(float)));

    const std::vector<Choice> all = candidates(pass);
    // As much scratch memory as the greediest candidate wants, or as there is.
    std::size_t most = 0;
    for (const Choice& c : all) most = std::max(most, c.scratch);
    void* scratch = memory.get_if_there(most);
    while (scratch == nullptr && most > 0) scratch = memory.get_if_there(most /= 2);
    const std::size_t result_bytes = sizeof(T) * static_cast<std::size_t>(forward ? y_count()
                                                                          : data  ? x_count()
                                                                                  : weights);
    const Timer begin, end;
    Choice best;
    best.milliseconds = std::numeric_limits<double>::infinity();
    std::string refused;
    for (Choice c : all) {
      const auto run = [&] {
        return forward ? run_forward(c, x, w, bias, rounded_bias, result, bits, scratch)
               : data  ? run_data(c, dy, c.rotated ? rotated : w, result, false, scratch)
                       : run_weights(c, x, dy, result, false, scratch);
      };
      Trial trial{text(spec_), kPassNames[static_cast<int>(pass)], c.name, 0, {}};
      const auto refuse = [&](const std::string& why) {
        trial.refused = why;
        refused += "; " + c.name + ": " + why;
        backend_.tried(trial);
      };
      if (c.scratch > most) {
        refuse("no memory for its workspace");
        continue;
      }
      if (z != nullptr)
        each(backend_.device(), kernels::groups(y_count()), kernels::Add<T>{z, nullptr, result, y_count()});
      else  // NaN: what is not written is wrong
        check(cudaMemsetAsync(result, 0xFF, result_bytes, backend_.stream()));
      if (const cudnnStatus_t status = run(); status != CUDNN_STATUS_SUCCESS) {
        (void)cudaGetLastError();
        refuse(cudnnGetErrorString(status));
        continue;
      }
      each(backend_.device(), kSamples,
           kernels::CheckConvolution<T>{pass,
                                        x,
                                        w,
                                        dy,
                                        result,
                                        z,
                                        spec_.frozen ? bias : nullptr,
                                        spec_.relu,
                                        spec_.n,
                                        channels_,
                                        spec_.h,
                                        spec_.w,
                                        spec_.c_out,
                                        spec_.h_out(),
                                        spec_.w_out(),
                                        spec_.kernel,
                                        spec_.stride,
                                        spec_.pad,
                                        error,
                                        error + kSamples,
                                        error + 2 * kSamples});
      float errors[3 * kSamples];
      backend_.copy_to_host(errors, error, sizeof errors);
      const float allowed = allowed_error(*std::max_element(errors + kSamples, errors + 2 * kSamples),
                                          *std::max_element(errors + 2 * kSamples, errors + 3 * kSamples));
      if (!std::all_of(errors, errors + kSamples, [&](float e) { return e <= allowed; })) {
        refuse("wrong results");
        continue;
      }
      if (backend_.deterministic()) {
        backend_.tried(trial);
        return c;
      }
      constexpr int kRuns = 4;
      for (int k = 0; k < kRuns; ++k) {
        check(cudaEventRecord(begin, backend_.stream()));
        check(run());
        check(cudaEventRecord(end, backend_.stream()));
        check(cudaEventSynchronize(end));
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin, end));
        c.milliseconds = k == 0 ? double(milliseconds) : std::min(c.milliseconds, double(milliseconds));
      }
      trial.milliseconds = c.milliseconds;
      backend_.tried(trial);
      if (c.milliseconds < best.milliseconds) best = c;
    }
    require(std::isfinite(best.milliseconds), ExitCode::device, "cuDNN ", cudnn_version(), " has no usable ",
            forward ? "forward pass"
            : data  ? "input gradient"
                    : "weight gradient",
            " of the convolution ", text(spec_), backend_.deterministic() ? " that is deterministic" : "", refused);
    return best;
  }

  /// The largest error of a right result, from the largest sum of its terms' sizes and the largest value: some
  /// roundings of an f32 sum, as Winograd's; TF32's 11 bits of each factor; one or two roundings to a 16-bit value.
  [[nodiscard]] float allowed_error(float size, float value) const {
    switch (spec_.storage) {
      case DType::f16:
        return 0x1p-13F * size + 0x1p-9F * value;
      case DType::bf16:
        return 0x1p-13F * size + 0x1p-6F * value;
      default:
        return (strict() ? 64 * 0x1p-24F : 0x1p-9F) * size;
    }
  }

  /// The bias in the storage's type, as cuDNN wants it.
  void store_bias(const float* bias, void* to) {
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), spec_.c_out,
           kernels::FoldWeights<T>{bias, nullptr, static_cast<T*>(to), 1, spec_.c_out, 1, spec_.c_out, spec_.c_out,
                                   false});
    });
  }

  CudaBackend& backend_;
  ConvSpec spec_;
  int channels_;
  TensorDesc x_, y_, bias_desc_;
  FilterDesc w_, rotated_w_;
  ConvolutionDesc convolution_, turned_;
  ActivationDesc activation_;
  Choice forward_, data_, weights_;
  Products products_;
  std::size_t image_offset_ = 0;
  const float* master_ = nullptr;                ///< training: the parameters themselves
  void *packed_ = nullptr, *rotated_ = nullptr;  ///< frozen
  float* bias_ = nullptr;
  void* rounded_bias_ = nullptr;
};

}  // namespace

std::unique_ptr<Conv2d> CudaBackend::conv2d(const ConvSpec& spec) { return std::make_unique<CudaConv2d>(*this, spec); }

}  // namespace dat::cuda
