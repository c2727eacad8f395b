// cuDNN's legacy calls as plans.

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/pass_plan.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

constexpr const char* kForward[] = {"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING",
                                    "WINOGRAD",      "WINOGRAD_NONFUSED"};
constexpr const char* kData[] = {"ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"};
constexpr const char* kWeights[] = {"ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"};

[[nodiscard]] const float* factor(bool one) { return one ? &kOne : &kZero; }

/// Description of a convolution for cuDNN. Rotated: the input gradient of a stride-1 convolution as the convolution of
/// dy with rotated weights that it is; then x is dy and y is dx.
struct Descriptors {
  Descriptors(const PassSpec& spec, bool rotated, cudnnTensorFormat_t format)
      : x(tensor(format, spec.conv.storage, spec.conv.n, spec.channels(), spec.conv.h, spec.conv.w)),
        y(tensor(format, spec.conv.storage, spec.conv.n, spec.conv.c_out, spec.conv.h_out(), spec.conv.w_out())),
        w(filter(format, spec.conv.storage, rotated ? spec.channels() : spec.conv.c_out,
                 rotated ? spec.conv.c_out : spec.channels(), spec.conv.kernel)),
        pad(rotated ? spec.conv.kernel - 1 - spec.conv.pad : spec.conv.pad),
        stride(spec.conv.stride) {
    if (rotated) std::swap(x, y);
  }
  TensorDesc x, y;
  FilterDesc w;
  int pad, stride;
};

/// One algorithm of one of cuDNN's three calls, which is named after the pass that it was made for.
struct Call {
  Pass call = Pass::forward;
  bool rotated = false;
  std::shared_ptr<const Descriptors> of{};
  int algorithm = 0;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  std::size_t workspace = 0;
  bool deterministic = false;
  std::string name{};

  [[nodiscard]] ConvolutionDesc convolution() const {
    ConvolutionDesc desc = cuda::convolution(of->pad, of->stride);
    check(cudnnSetConvolutionMathType(desc, math));
    return desc;
  }
  /// forward: to = from * with, x and weights. data: dy and weights. weights: x and dy.
  [[nodiscard]] cudnnStatus_t run(cudnnHandle_t cudnn, const ConvolutionDesc& desc, const void* from, const void* with,
                                  void* to, bool accumulate, void* scratch) const {
    const float* beta = factor(accumulate);
    switch (call) {
      case Pass::forward:
        return cudnnConvolutionForward(cudnn, &kOne, of->x, from, of->w, with, desc,
                                       static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), scratch, workspace, beta,
                                       of->y, to);
      case Pass::data:
        return cudnnConvolutionBackwardData(cudnn, &kOne, of->w, with, of->y, from, desc,
                                            static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), scratch, workspace,
                                            beta, of->x, to);
      default:
        return cudnnConvolutionBackwardFilter(cudnn, &kOne, of->x, from, of->y, with, desc,
                                              static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm), scratch,
                                              workspace, beta, of->w, to);
    }
  }
};

/// Base of the plans below.
class LegacyPlan : public PassPlan {
 public:
  LegacyPlan(CudaBackend& backend, const PassSpec& spec, Call call, const std::string& form)
      : backend_(backend),
        spec_(spec),
        call_(std::move(call)),
        convolution_(call_.convolution()),
        name_(call_.name + form) {}
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::size_t scratch_bytes() const override { return call_.workspace; }
  [[nodiscard]] bool deterministic() const override { return call_.deterministic; }
  [[nodiscard]] bool rotated_weights() const override { return call_.rotated; }

 protected:
  [[nodiscard]] const void* from(const Operands& o) const { return spec_.pass == Pass::data ? o.dy : o.x; }
  [[nodiscard]] const void* with(const Operands& o) const { return spec_.pass == Pass::weights ? o.dy : o.w; }
  /// The residual, where the convolution adds to it.
  void begin(const Operands& o) const {
    if (!spec_.conv.keeps_residual || spec_.pass != Pass::forward) return;
    with_storage(spec_.conv.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), kernels::groups(spec_.y_count()),
           kernels::Add<T>{static_cast<const T*>(o.other), nullptr, static_cast<T*>(o.result), spec_.y_count()});
    });
  }
  [[nodiscard]] bool adds(const Operands& o) const {
    return spec_.pass == Pass::forward ? spec_.conv.accumulate : o.accumulate;
  }
  /// Finishes a frozen forward pass whose y is the convolution alone: bias, the previous y, ReLU.
  void finish(const Operands& o) const {
    if (spec_.pass != Pass::forward || !spec_.conv.frozen) return;
    with_storage(spec_.conv.storage, [&](auto type) {
      using T = decltype(type);
      auto* y = static_cast<T*>(o.result);
      const ConvSpec& s = spec_.conv;
      each(backend_.device(), kernels::groups(spec_.y_count()),
           kernels::AffineRelu<T>{
               y, nullptr, o.bias, y, o.bits, {s.c_out, s.h_out(), s.w_out(), s.c_out}, spec_.y_count(), s.relu});
    });
  }

  CudaBackend& backend_;
  const PassSpec spec_;
  const Call call_;
  const ConvolutionDesc convolution_;

 private:
  const std::string name_;
};

/// The convolution by cuDNN, the end of a frozen one by a kernel of ours.
class PlainPlan final : public LegacyPlan {
 public:
  PlainPlan(CudaBackend& backend, const PassSpec& spec, Call call) : LegacyPlan(backend, spec, std::move(call), "") {}
  [[nodiscard]] cudnnStatus_t run(const Operands& o) const override {
    begin(o);
    const cudnnStatus_t status =
        call_.run(backend_.cudnn(), convolution_, from(o), with(o), o.result, adds(o), o.scratch);
    if (status == CUDNN_STATUS_SUCCESS) finish(o);
    return status;
  }
};

/// A frozen forward pass with bias, addition and ReLU by cuDNN; the mask bits by a kernel of ours.
class FusedPlan final : public LegacyPlan {
 public:
  /// cuDNN wants a z, also where it is to count nothing: y itself, or, for an algorithm that reads it all the same (it
  /// may hold NaN), zeros.
  FusedPlan(CudaBackend& backend, const PassSpec& spec, Call call, bool zeros)
      : LegacyPlan(backend, spec, std::move(call), zeros ? " fused with zeros" : " fused"),
        zeros_(zeros),
        bias_(tensor(CUDNN_TENSOR_NHWC, spec.conv.storage, 1, spec.conv.c_out, 1, 1)),
        activation_(activation(spec.conv.relu)) {}
  [[nodiscard]] std::size_t zeros_bytes() const override {
    return zeros_ ? static_cast<std::size_t>(spec_.y_count()) * size_of(spec_.conv.storage) : 0;
  }
  [[nodiscard]] cudnnStatus_t run(const Operands& o) const override {
    const Descriptors& of = *call_.of;
    const cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
        backend_.cudnn(), &kOne, of.x, o.x, of.w, o.w, convolution_,
        static_cast<cudnnConvolutionFwdAlgo_t>(call_.algorithm), o.scratch, call_.workspace, factor(adds(o)), of.y,
        spec_.conv.keeps_residual ? o.other
        : zeros_                  ? o.zeros
                                  : o.result,
        bias_, o.rounded_bias, activation_, of.y, o.result);
    if (status == CUDNN_STATUS_SUCCESS) store_mask(backend_, spec_, o);
    return status;
  }

 private:
  bool zeros_;
  TensorDesc bias_;
  ActivationDesc activation_;
};

/// The convolution by cuDNN on copies of its tensors in NCHW: for products by multiply-adds, for which NHWC has hardly
/// any fast code. Copying is reading and writing each tensor once more.
class ChannelsFirstPlan final : public LegacyPlan {
 public:
  ChannelsFirstPlan(CudaBackend& backend, const PassSpec& spec, Call call)
      : LegacyPlan(backend, spec, std::move(call), " NCHW") {}
  [[nodiscard]] std::size_t scratch_bytes() const override {
    return bytes(x()) + bytes(y()) + bytes(w()) + aligned(call_.workspace);
  }
  [[nodiscard]] cudnnStatus_t run(const Operands& o) const override {
    return with_storage(spec_.conv.storage, [&](auto type) { return run_in<decltype(type)>(o); });
  }

 private:
  struct Shape {
    int n, c, pixels;
    [[nodiscard]] std::int64_t pieces() const { return n * kernels::groups(c) * pixels; }
  };
  [[nodiscard]] Shape x() const { return {spec_.conv.n, spec_.channels(), spec_.conv.h * spec_.conv.w}; }
  [[nodiscard]] Shape y() const { return {spec_.conv.n, spec_.conv.c_out, spec_.conv.h_out() * spec_.conv.w_out()}; }
  [[nodiscard]] Shape w() const {
    return call_.rotated ? Shape{spec_.channels(), spec_.conv.c_out, spec_.taps()}
                         : Shape{spec_.conv.c_out, spec_.channels(), spec_.taps()};
  }
  [[nodiscard]] std::size_t bytes(const Shape& s) const {
    return aligned(static_cast<std::size_t>(std::int64_t{s.n} * s.c * s.pixels) * size_of(spec_.conv.storage));
  }

  template <class T>
  [[nodiscard]] cudnnStatus_t run_in(const Operands& o) const {
    auto* scratch = static_cast<char*>(o.scratch);
    const auto take = [&](const Shape& s) {
      auto* const part = reinterpret_cast<T*>(scratch);
      scratch += bytes(s);
      return part;
    };
    const bool forward = spec_.pass == Pass::forward, data = spec_.pass == Pass::data;
    const Shape from_shape = data ? y() : x(), with_shape = forward || data ? w() : y(),
                to_shape = forward ? y()
                           : data  ? x()
                                   : w();
    T *const from_copy = take(from_shape), *const with_copy = take(with_shape), *const to_copy = take(to_shape);
    const auto copy = [&](const void* of, T* to, const Shape& s) {
      each(backend_.device(), s.pieces(), kernels::ChannelsFirst<T>{static_cast<const T*>(of), to, s.c, s.pixels});
    };
    copy(from(o), from_copy, from_shape);
    copy(with(o), with_copy, with_shape);
    const cudnnStatus_t status =
        call_.run(backend_.cudnn(), convolution_, from_copy, with_copy, to_copy, false, scratch);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    begin(o);
    each(backend_.device(), to_shape.pieces(),
         kernels::ChannelsLast<T>{to_copy, static_cast<T*>(o.result), to_shape.c, to_shape.pixels, adds(o)});
    finish(o);
    return status;
  }
};

class Lister {
 public:
  Lister(CudaBackend& backend, const PassSpec& spec, Plans& plans) : backend_(backend), spec_(spec), plans_(plans) {}

  /// True: multiply-adds, without tensor cores, or in f32 without TF32.
  [[nodiscard]] bool multiplies_alone() const {
    return !backend_.gpu().tensor_cores || (spec_.conv.storage == DType::f32 && !backend_.tf32());
  }

  /// cuDNN's algorithms for the pass in this layout, in its own order of preference.
  [[nodiscard]] std::vector<Call> calls(cudnnTensorFormat_t format) {
    std::vector<Call> all = list(spec_.pass, false, format);
    if (spec_.pass == Pass::data && spec_.packed() && spec_.conv.stride == 1)
      std::ranges::move(list(Pass::forward, true, format), std::back_inserter(all));
    return all;
  }

 private:
  [[nodiscard]] std::vector<Call> list(Pass call, bool rotated, cudnnTensorFormat_t format) {
    const auto of = std::make_shared<const Descriptors>(spec_, rotated, format);
    // The fastest multiplication, with sums in f32.
    const cudnnMathType_t math = multiplies_alone()                 ? CUDNN_FMA_MATH
                                 : spec_.conv.storage != DType::f32 ? CUDNN_TENSOR_OP_MATH
                                                                    : CUDNN_DEFAULT_MATH;
    const Call like{.call = call, .rotated = rotated, .of = of, .math = math};
    const ConvolutionDesc desc = like.convolution();
    std::vector<Call> all;
    if (call == Pass::forward)
      ask<cudnnConvolutionFwdAlgoPerf_t>(all, like, kForward, [&](int most, int* count, auto* found) {
        return cudnnGetConvolutionForwardAlgorithm_v7(backend_.cudnn(), of->x, of->w, desc, of->y, most, count, found);
      });
    else if (call == Pass::data)
      ask<cudnnConvolutionBwdDataAlgoPerf_t>(all, like, kData, [&](int most, int* count, auto* found) {
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(backend_.cudnn(), of->w, of->y, desc, of->x, most, count,
                                                           found);
      });
    else
      ask<cudnnConvolutionBwdFilterAlgoPerf_t>(all, like, kWeights, [&](int most, int* count, auto* found) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(backend_.cudnn(), of->x, of->y, desc, of->w, most, count,
                                                             found);
      });
    return all;
  }

  template <class Perf, std::size_t N, class Get>
  void ask(std::vector<Call>& all, const Call& like, const char* const (&names)[N], const Get& get) {
    constexpr int kMostFound = 16;
    Perf found[kMostFound];
    int count{};
    if (const cudnnStatus_t status = get(kMostFound, &count, found); status != CUDNN_STATUS_SUCCESS) {
      plans_.refused.push_back({"legacy calls", cudnnGetErrorString(status)});
      return;
    }
    for (const Perf& perf : std::vector<Perf>(found, found + count)) {
      if (perf.status != CUDNN_STATUS_SUCCESS) continue;
      Call call = like;
      call.algorithm = static_cast<int>(perf.algo);
      if (like.math != CUDNN_FMA_MATH) call.math = perf.mathType;
      call.workspace = perf.memory;
      call.deterministic = perf.determinism == CUDNN_DETERMINISTIC;
      call.name = static_cast<std::size_t>(perf.algo) < N ? names[perf.algo] : std::to_string(call.algorithm);
      if (call.math == CUDNN_TENSOR_OP_MATH) call.name += " tensor";
      if (call.rotated) call.name += " rotated";
      all.push_back(std::move(call));
    }
  }

  CudaBackend& backend_;
  const PassSpec& spec_;
  Plans& plans_;
};

}  // namespace

Plans legacy_plans(CudaBackend& backend, const PassSpec& spec) {
  Plans all;
  Lister lister(backend, spec, all);
  const auto add = [&](std::unique_ptr<const PassPlan> plan) { all.plans.push_back(std::move(plan)); };
  const auto add_channels_first = [&] {
    for (const Call& call : lister.calls(CUDNN_TENSOR_NCHW))
      add(std::make_unique<ChannelsFirstPlan>(backend, spec, call));
  };
  // Multiply-adds alone have fast code in NCHW, on GPUs before TF32 hardly any other.
  const bool alone = lister.multiplies_alone(), old = backend.gpu().capability < 80;
  if (alone && old) add_channels_first();
  for (const Call& call : lister.calls(CUDNN_TENSOR_NHWC)) {
    // cuDNN applies the identity with one algorithm only.
    if (spec.pass == Pass::forward && spec.conv.frozen &&
        (spec.conv.relu || call.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)) {
      add(std::make_unique<FusedPlan>(backend, spec, call, false));
      if (!spec.conv.accumulate) add(std::make_unique<FusedPlan>(backend, spec, call, true));
    }
    add(std::make_unique<PlainPlan>(backend, spec, call));
  }
  if (alone && !old) add_channels_first();
  return all;
}

}  // namespace dat::cuda
