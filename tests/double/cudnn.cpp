// cuDNN's legacy interface: convolutions and batch norm in NHWC. See double.hpp.
//
// The lists of algorithms hold one that computes wrong numbers, one that differs from call to call, one that is not
// supported, one that wants more memory than there is, and right ones.

#include <cudnn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>
#include <thread>

#include "double.hpp"
#include "storage.hpp"

using namespace dat_double;

struct cudnnTensorStruct {
  std::optional<cudaDataType_t> type;
  bool nhwc = false, nchw = false;  // which it is, or no different from
  int n = 0, c = 0, h = 0, w = 0;
  std::size_t elements() const { return std::size_t(n) * c * h * w; }
  std::size_t bytes() const { return elements() * size_of(*type); }
};
struct cudnnFilterStruct : cudnnTensorStruct {};  // n filters
struct cudnnConvolutionStruct {
  int pad_h, pad_w, stride_h, stride_w;
  cudnnConvolutionMode_t mode;
  cudnnDataType_t compute;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode;
  bool keep_nan;
};

namespace {

constexpr auto kOk = CUDNN_STATUS_SUCCESS, kBad = CUDNN_STATUS_BAD_PARAM, kUnsupported = CUDNN_STATUS_NOT_SUPPORTED;

std::optional<cudaDataType_t> storage(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return CUDA_R_32F;
  if (type == CUDNN_DATA_HALF) return CUDA_R_16F;
  if (type == CUDNN_DATA_BFLOAT16) return CUDA_R_16BF;
  return std::nullopt;
}

cudnnStatus_t set(cudnnTensorStruct* t, cudnnDataType_t type, bool nhwc, bool nchw, int n, int c, int h, int w) {
  if (t == nullptr || n < 1 || c < 1 || h < 1 || w < 1) return kBad;
  const bool both = c == 1 || h * w == 1;
  static_cast<cudnnTensorStruct&>(*t) = {storage(type), nhwc || (nchw && both), nchw || (nhwc && both), n, c, h, w};
  return t->type ? kOk : kUnsupported;
}

template <class T>
cudnnStatus_t create(T** made) {
  *made = new T{};
  return kOk;
}
template <class T>
cudnnStatus_t destroy(T* it) {
  delete it;
  return kOk;
}

bool same(const cudnnTensorStruct& a, const cudnnTensorStruct& b) {
  return a.type == b.type && a.nhwc == b.nhwc && a.nchw == b.nchw && a.n == b.n && a.c == b.c && a.h == b.h &&
         a.w == b.w;
}
bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto *p = static_cast<const char*>(a), *q = static_cast<const char*>(b);
  return p < q + b_bytes && q < p + a_bytes;
}

float number(const void* p) { return *static_cast<const float*>(p); }

/// x, w and y of a convolution that fit together.
struct Problem {
  cudnnTensorStruct x, w, y;
  cudnnConvolutionStruct conv{};
  cudaDataType_t type = CUDA_R_32F;
  bool tf32 = false, nhwc = true;
};

int output(int in, int filter, int pad, int stride) { return (in + 2 * pad - filter) / stride + 1; }

cudnnStatus_t fit(const cudnnTensorStruct* x, const cudnnFilterStruct* w, const cudnnConvolutionStruct* conv,
                  const cudnnTensorStruct* y, Problem& out) {
  if (x == nullptr || w == nullptr || conv == nullptr || y == nullptr || !x->type || !w->type || !y->type ||
      conv->stride_h < 1)
    return kBad;
  if (x->c != w->c || y->n != x->n || y->c != w->n || y->h != output(x->h, w->h, conv->pad_h, conv->stride_h) ||
      y->w != output(x->w, w->w, conv->pad_w, conv->stride_w))
    return kBad;
  const bool nhwc = x->nhwc && w->nhwc && y->nhwc, nchw = x->nchw && w->nchw && y->nchw;
  if (!(nhwc || nchw) || x->type != w->type || x->type != y->type || conv->mode != CUDNN_CROSS_CORRELATION ||
      conv->compute != CUDNN_DATA_FLOAT)
    return kUnsupported;
  out = {*x, *w, *y, *conv, *x->type, conv->math != CUDNN_FMA_MATH, nhwc};
  return kOk;
}

/// The input row or column that filter element r of output p reads, or -1.
int reads(int p, int r, int stride, int pad, int in) {
  const int h = p * stride - pad + r;
  return h >= 0 && h < in ? h : -1;
}
/// f(x, y): the offsets of everything that sample n multiplies by filter element (r, s) in output row p, one input and
/// output pixel at a time, each with all channels.
template <class F>
void tap(const Problem& g, int n, int p, int r, int s, const F& f) {
  const int h = reads(p, r, g.conv.stride_h, g.conv.pad_h, g.x.h);
  if (h < 0) return;
  for (int q = 0; q < g.y.w; ++q)
    if (const int w = reads(q, s, g.conv.stride_w, g.conv.pad_w, g.x.w); w >= 0)
      f(((std::size_t(n) * g.x.h + h) * g.x.w + w) * g.x.c, ((std::size_t(n) * g.y.h + p) * g.y.w + q) * g.y.c);
}

using Numbers = std::vector<float>;
using Result = std::vector<double>;

/// [filter][r][s][c] to [r][s][c][filter], or back: the innermost loops run over filters.
template <class T>
Result transposed(const std::vector<T>& from, std::size_t rows, std::size_t columns) {
  Result to(from.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  return to;
}

Result forward(const Problem& g, const Numbers& x, const Numbers& w) {
  const Result turned = transposed(w, g.w.n, w.size() / g.w.n);
  Result y(g.y.elements());
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < g.x.n; ++n)
    for (int p = 0; p < g.y.h; ++p)
      for (int r = 0; r < g.w.h; ++r)
        for (int s = 0; s < g.w.w; ++s)
          tap(g, n, p, r, s, [&](std::size_t xi, std::size_t yi) {
            double* const sums = &y[yi];
            for (int c = 0; c < g.w.c; ++c) {
              const double a = x[xi + c];
              const double* const b = &turned[((std::size_t(r) * g.w.w + s) * g.w.c + c) * g.w.n];
#pragma omp simd
              for (int k = 0; k < g.w.n; ++k) sums[k] += a * b[k];
            }
          });
  return y;
}

Result backward_data(const Problem& g, const Numbers& w, const Numbers& dy) {
  Result dx(g.x.elements());
  const Result weights(w.begin(), w.end());
#pragma omp parallel for schedule(dynamic)
  for (int n = 0; n < g.x.n; ++n)
    for (int p = 0; p < g.y.h; ++p)
      for (int r = 0; r < g.w.h; ++r)
        for (int s = 0; s < g.w.w; ++s)
          tap(g, n, p, r, s, [&](std::size_t xi, std::size_t yi) {
            double* const sums = &dx[xi];
            for (int k = 0; k < g.w.n; ++k) {
              const double a = dy[yi + k];
              const double* const b = &weights[((std::size_t(k) * g.w.h + r) * g.w.w + s) * g.w.c];
#pragma omp simd
              for (int c = 0; c < g.w.c; ++c) sums[c] += a * b[c];
            }
          });
  return dx;
}

Result backward_filter(const Problem& g, const Numbers& x, const Numbers& dy) {
  Result turned(g.w.elements());
#pragma omp parallel for collapse(3) schedule(static)
  for (int r = 0; r < g.w.h; ++r)
    for (int s = 0; s < g.w.w; ++s)
      for (int c = 0; c < g.w.c; ++c) {
        double* const sums = &turned[((std::size_t(r) * g.w.w + s) * g.w.c + c) * g.w.n];
        for (int n = 0; n < g.x.n; ++n)
          for (int p = 0; p < g.y.h; ++p)
            tap(g, n, p, r, s, [&](std::size_t xi, std::size_t yi) {
              const double a = x[xi + c];
              const float* const b = &dy[yi];
#pragma omp simd
              for (int k = 0; k < g.w.n; ++k) sums[k] += a * b[k];
            });
      }
  return transposed(turned, turned.size() / g.w.n, g.w.n);
}

/// What is known of an algorithm.
struct Algorithm {
  bool supported = false, wrong = false, deterministic = true;
  std::size_t workspace = 0;
  Vices vices{};
};

std::map<std::pair<dat_double::Call, int>, Vices>& all_vices() {
  static auto& all = *new std::map<std::pair<dat_double::Call, int>, Vices>;
  return all;
}

/// Element i of an NHWC tensor in memory.
std::size_t place(const cudnnTensorStruct& t, bool nhwc, std::size_t i) {
  if (nhwc) return i;
  const std::size_t c = i % t.c, pixels = std::size_t(t.h) * t.w, pixel = i / t.c % pixels, n = i / t.c / pixels;
  return (n * t.c + c) * pixels + pixel;
}
Numbers to_nhwc(Numbers values, const cudnnTensorStruct& t, bool nhwc) {
  if (nhwc) return values;
  Numbers to(values.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values[place(t, nhwc, i)];
  return to;
}

Algorithm known(const Problem& g, cudnnConvolutionFwdAlgo_t algo) {
  if (algo == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD) return {true, true, true, 65536};
  if (algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) return {true, false, true, 1024 + g.w.bytes()};
  if (algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) return {true};
  return {};
}
Algorithm known(const Problem& g, cudnnConvolutionBwdDataAlgo_t algo) {
  if (algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED) return {true, true, true, 65536};
  if (algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0) return {true, false, false, 0};
  if (algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) return {true, false, true, 1024 + g.w.bytes()};
  return {};
}
Algorithm known(const Problem& g, cudnnConvolutionBwdFilterAlgo_t algo) {
  if (algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3) return {true, false, true, std::size_t{1} << 40};
  if (algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0) return {true, false, false, 0};
  if (algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1) return {true, false, true, 2048 + g.w.bytes()};
  return {};
}

dat_double::Call call_of(cudnnConvolutionFwdAlgo_t) { return dat_double::Call::forward; }
dat_double::Call call_of(cudnnConvolutionBwdDataAlgo_t) { return dat_double::Call::data; }
dat_double::Call call_of(cudnnConvolutionBwdFilterAlgo_t) { return dat_double::Call::filter; }

template <class Algo>
Algorithm describe(const Problem& g, Algo algo) {
  Algorithm it = known(g, algo);
  it.vices = vices(call_of(algo), static_cast<int>(algo));
  return it;
}

template <class Perf, class Algo>
cudnnStatus_t list(const Problem& g, std::initializer_list<Algo> algos, int wanted, int* returned, Perf* out) {
  if (wanted < 1 || returned == nullptr || out == nullptr) return kBad;
  if (std::getenv("DAT_DOUBLE_NO_LIST") != nullptr) return kUnsupported;
  *returned = 0;
  for (const Algo algo : algos) {
    if (*returned == wanted) break;
    const Algorithm a = describe(g, algo);
    out[(*returned)++] = {algo,
                          a.supported ? kOk : kUnsupported,
                          -1,
                          a.workspace,
                          a.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                          g.conv.math,
                          {}};
  }
  return kOk;
}

cudnnStatus_t refused() {
  dat_double::set_error(cudaErrorNotSupported);
  return kUnsupported;
}

cudnnStatus_t queue(cudnnHandle_t handle, void* workspace, std::size_t bytes, std::function<void()> work,
                    const char* name = "cuDNN") {
  const auto all = [=] {
    scribble(workspace, bytes);
    work();
  };
  return enqueue(handle->stream, all, {}, name) == cudaSuccess ? kOk : CUDNN_STATUS_EXECUTION_FAILED;
}

/// One of the three convolutions: out = finish(i, alpha * compute(...)) + beta * out.
template <class Compute, class Finish>
cudnnStatus_t convolve(cudnnHandle_t handle, const Problem& g, const Algorithm& algorithm, void* workspace,
                       std::size_t bytes, const cudnnTensorStruct& a_desc, const void* a,
                       const cudnnTensorStruct& b_desc, const void* b, const cudnnTensorStruct& out_desc, void* out,
                       float beta, Compute compute, Finish finish) {
  if (!algorithm.supported) return kUnsupported;
  const auto crooked = [&](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % size_of(g.type) != 0; };
  if (handle == nullptr || bytes < algorithm.workspace || overlap(out, out_desc.bytes(), a, a_desc.bytes()) ||
      overlap(out, out_desc.bytes(), b, b_desc.bytes()) || crooked(a) || crooked(b) || crooked(out))
    return kBad;
  require_device("convolution", "the first input", a, a_desc.bytes());
  require_device("convolution", "the second input", b, b_desc.bytes());
  require_device("convolution", "the output", out, out_desc.bytes());
  require_device("convolution", "the workspace", workspace, algorithm.workspace);
  const Vices vices = algorithm.vices;
  if (vices.refuses) return refused();
  if (vices.waits && cudaStreamSynchronize(handle->stream) != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  std::this_thread::sleep_for(vices.host);
  auto kernel_time = vices.device;
  // GPUs without tensor cores have no fast code for 16 bits in NHWC.
  if (capability() < 70 && g.type != CUDA_R_32F && g.nhwc) kernel_time += std::chrono::milliseconds(5);
  const auto run = [=] {
    if (vices.runs != nullptr) ++*vices.runs;
    static std::atomic<unsigned> calls = 0;
    const double noise = !algorithm.deterministic && calls++ % 2 == 1 ? 1 + 0x1p-22 : 1;
    const auto numbers = [&](const void* from, const cudnnTensorStruct& t) {
      Numbers all = read(from, g.type, t.elements(), g.tf32 && !vices.cuts);
      if (vices.cuts)
        for (float& v : all) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffffe000U);
      return to_nhwc(std::move(all), t, g.nhwc);
    };
    Numbers second = numbers(b, b_desc);
    if (vices.half) std::fill(second.begin() + static_cast<std::ptrdiff_t>(second.size() / 2), second.end(), 0.0F);
    const Result result = compute(g, numbers(a, a_desc), second);
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < result.size(); ++i)
      blend(out, g.type, place(out_desc, g.nhwc, i),
            finish(i, result[i] * noise * (algorithm.wrong && i % 16 == 5 ? 1.2 : 1)), vices.ignores_beta ? 0 : beta);
    dat_double::rest(kernel_time);
  };
  return queue(handle, workspace, algorithm.workspace, run, "cuDNN convolution");
}

bool batch_norm_fits(const cudnnTensorStruct* x, const cudnnTensorStruct* y, const cudnnTensorStruct* parameters) {
  return x != nullptr && y != nullptr && parameters != nullptr && x->type && same(*x, *y) && parameters->n == 1 &&
         parameters->c == x->c && parameters->h == 1 && parameters->w == 1 && parameters->type == CUDA_R_32F;
}
/// As documented: the activation is fused in half precision, by the persistent kernels, and with a ReLU.
bool batch_norm_supported(cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorStruct* x,
                          const cudnnActivationStruct* activation) {
  if (mode != CUDNN_BATCHNORM_SPATIAL && mode != CUDNN_BATCHNORM_SPATIAL_PERSISTENT) return false;
  if (!x->nhwc || x->type == CUDA_R_16BF) return false;
  if (mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT && dat_double::vices(dat_double::Call::norm, 0).plain) return false;
  return ops == CUDNN_BATCHNORM_OPS_BN ||
         (mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT && x->type == CUDA_R_16F && x->c % 4 == 0 &&
          activation != nullptr && activation->mode == CUDNN_ACTIVATION_RELU);
}
constexpr std::size_t kForwardWorkspace = 512, kBackwardWorkspace = 1024, kMark = 256;
/// A mark, and a byte for each element that tells where the activation was open.
std::size_t reserve_bytes(cudnnBatchNormOps_t ops, const cudnnTensorStruct& x) {
  return kMark + (ops == CUDNN_BATCHNORM_OPS_BN ? 0 : x.elements());
}

struct Moments {
  double mean, inverse_deviation;
};
Moments moments(const Numbers& x, std::size_t samples, int channels, int c, double epsilon) {
  double mean = 0, variance = 0;
  for (std::size_t i = 0; i < samples; ++i) mean += x[i * channels + c];
  mean /= double(samples);
  for (std::size_t i = 0; i < samples; ++i) variance += (x[i * channels + c] - mean) * (x[i * channels + c] - mean);
  variance /= double(samples);
  return {mean, 1 / std::sqrt(variance + epsilon)};
}

}  // namespace

namespace dat_double {
Vices& vices(Call call, int algorithm) { return all_vices()[{call, algorithm}]; }
void clear_vices() { all_vices().clear(); }
}  // namespace dat_double

extern "C" {

/// As a GPU without code in this version of the library is refused.
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (capability() < 75 && cudnnGetVersion() >= 91100) return CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH;
  return create(handle);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return kBad;
  handle->stream = stream;
  return kOk;
}
std::size_t cudnnGetVersion() {
  const char* version = std::getenv("DAT_DOUBLE_CUDNN");
  return version != nullptr ? std::strtoul(version, nullptr, 10) : CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status_name(status,
                     {DAT_NAMED(CUDNN_STATUS_SUCCESS), DAT_NAMED(CUDNN_STATUS_BAD_PARAM),
                      DAT_NAMED(CUDNN_STATUS_NOT_SUPPORTED), DAT_NAMED(CUDNN_STATUS_EXECUTION_FAILED)},
                     "an unknown cuDNN status");
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* t) { return create(t); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) { return destroy(t); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format, cudnnDataType_t type,
                                         int n, int c, int h, int w) {
  return set(t, type, format == CUDNN_TENSOR_NHWC, format == CUDNN_TENSOR_NCHW, n, c, h, w);
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* f) { return create(f); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t f) { return destroy(f); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  return set(f, type, format == CUDNN_TENSOR_NHWC, format == CUDNN_TENSOR_NCHW, k, c, h, w);
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* a) { return create(a); }
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t a) { return destroy(a); }
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t a, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double ceiling) {
  if (a == nullptr || ceiling != 0) return kBad;
  *a = {mode, nan == CUDNN_PROPAGATE_NAN};
  return kOk;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* conv) { return create(conv); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv) { return destroy(conv); }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (conv == nullptr || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1) return kBad;
  if (dilation_h != 1 || dilation_w != 1) return kUnsupported;
  *conv = {pad_h, pad_w, stride_h, stride_w, mode, compute, conv->math};
  return kOk;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
  if (conv == nullptr) return kBad;
  conv->math = math;
  return kOk;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int wanted, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* out) {
  Problem g;
  if (const auto status = fit(x, w, conv, y, g); status != kOk) return status;
  return list(g,
              {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
               CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM},
              wanted, returned, out);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx, const int wanted,
                                                          int* returned, cudnnConvolutionBwdDataAlgoPerf_t* out) {
  Problem g;
  if (const auto status = fit(dx, w, conv, dy, g); status != kOk) return status;
  return list(g,
              {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
               CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
              wanted, returned, out);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw, const int wanted,
                                                            int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* out) {
  Problem g;
  if (const auto status = fit(x, dw, conv, dy, g); status != kOk) return status;
  return list(
      g,
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
      wanted, returned, out);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void* x, const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo,
                                      void* workspace, std::size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_desc, void* y) {
  Problem g;
  if (const auto status = fit(x_desc, w_desc, conv, y_desc, g); status != kOk) return status;
  if (alpha == nullptr || beta == nullptr) return kBad;
  return convolve(handle, g, describe(g, algo), workspace, bytes, g.x, x, g.w, w, g.y, y, number(beta), forward,
                  [factor = number(alpha)](std::size_t, double v) { return factor * v; });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void* w,
                                           const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algo,
                                           void* workspace, std::size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_desc, void* dx) {
  Problem g;
  if (const auto status = fit(dx_desc, w_desc, conv, dy_desc, g); status != kOk) return status;
  if (alpha == nullptr || beta == nullptr) return kBad;
  return convolve(handle, g, describe(g, algo), workspace, bytes, g.w, w, g.y, dy, g.x, dx, number(beta), backward_data,
                  [factor = number(alpha)](std::size_t, double v) { return factor * v; });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void* x,
                                             const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* workspace, std::size_t bytes,
                                             const void* beta, const cudnnFilterDescriptor_t dw_desc, void* dw) {
  Problem g;
  if (const auto status = fit(x_desc, dw_desc, conv, dy_desc, g); status != kOk) return status;
  if (alpha == nullptr || beta == nullptr) return kBad;
  return convolve(handle, g, describe(g, algo), workspace, bytes, g.x, x, g.y, dy, g.w, dw, number(beta),
                  backward_filter, [factor = number(alpha)](std::size_t, double v) { return factor * v; });
}
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, const cudnnTensorDescriptor_t x_desc, const void* x,
    const cudnnFilterDescriptor_t w_desc, const void* w, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algo, void* workspace, std::size_t bytes, const void* alpha2,
    const cudnnTensorDescriptor_t z_desc, const void* z, const cudnnTensorDescriptor_t bias_desc, const void* bias,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y_desc, void* y) {
  Problem g;
  if (const auto status = fit(x_desc, w_desc, conv, y_desc, g); status != kOk) return status;
  if (alpha1 == nullptr || alpha2 == nullptr || z_desc == nullptr || z == nullptr || bias_desc == nullptr ||
      activation == nullptr || (z != y && overlap(z, g.y.bytes(), y, g.y.bytes())))
    return kBad;
  // As documented: the bias has the type of y, and the identity one algorithm.
  const bool relu = activation->mode == CUDNN_ACTIVATION_RELU;
  const Algorithm algorithm = describe(g, algo);
  if (!g.nhwc || !same(*z_desc, g.y) || bias_desc->type != g.type || bias_desc->n != 1 || bias_desc->c != g.y.c ||
      bias_desc->h != 1 || bias_desc->w != 1 || activation->keep_nan ||
      (!relu && activation->mode != CUDNN_ACTIVATION_IDENTITY) ||
      (!relu && algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))
    return kUnsupported;
  require_device("cudnnConvolutionBiasActivationForward", "z", z, g.y.bytes());
  require_device("cudnnConvolutionBiasActivationForward", "the bias", bias, bias_desc->bytes());
  const float a1 = number(alpha1), a2 = number(alpha2);
  const auto finish = [=, type = g.type, channels = std::size_t(g.y.c), reads_z = algorithm.vices.reads_z](
                          std::size_t i, double v) {
    v = a1 * v + load(bias, type, i % channels);
    if (a2 != 0 || reads_z) v += double{a2} * load(z, type, i);
    return relu && !(v > 0) ? 0.0 : v;
  };
  return convolve(handle, g, algorithm, workspace, bytes, g.x, x, g.w, w, g.y, y, 0, forward, finish);
}

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t out, const cudnnTensorDescriptor_t x,
                                            cudnnBatchNormMode_t mode) {
  if (out == nullptr || x == nullptr || !x->type) return kBad;
  if (mode == CUDNN_BATCHNORM_PER_ACTIVATION) return kUnsupported;
  return set(out, CUDNN_DATA_FLOAT, true, true, 1, x->c, 1, 1);
}
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t parameters,
    const cudnnActivationDescriptor_t activation, std::size_t* bytes) {
  *bytes = kForwardWorkspace;
  if (!batch_norm_fits(x, y, parameters)) return kBad;
  return batch_norm_supported(mode, ops, x, activation) ? kOk : kUnsupported;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t parameters,
    const cudnnActivationDescriptor_t activation, std::size_t* bytes) {
  *bytes = kBackwardWorkspace;
  if (!batch_norm_fits(x, dy, parameters) || !batch_norm_fits(x, dx, parameters)) return kBad;
  return batch_norm_supported(mode, ops, x, activation) ? kOk : kUnsupported;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t, cudnnBatchNormMode_t mode,
                                                                   cudnnBatchNormOps_t ops,
                                                                   const cudnnActivationDescriptor_t activation,
                                                                   const cudnnTensorDescriptor_t x,
                                                                   std::size_t* bytes) {
  if (x == nullptr || !x->type) return kBad;
  *bytes = reserve_bytes(ops, *x);
  return batch_norm_supported(mode, ops, x, activation) ? kOk : kUnsupported;
}

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t x_desc, const void* x_data, const cudnnTensorDescriptor_t z_desc, const void* z_data,
    const cudnnTensorDescriptor_t y_desc, void* y_data, const cudnnTensorDescriptor_t parameters,
    const void* scale_data, const void* bias_data, double, void* running_mean, void* running_variance, double epsilon,
    void* save_mean, void* save_inverse, cudnnActivationDescriptor_t activation, void* workspace,
    std::size_t workspace_size, void* reserve, std::size_t reserve_size) {
  const bool adds = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, acts = ops != CUDNN_BATCHNORM_OPS_BN;
  if (handle == nullptr || alpha == nullptr || beta == nullptr || !batch_norm_fits(x_desc, y_desc, parameters) ||
      epsilon < CUDNN_BN_MIN_EPSILON || workspace_size < kForwardWorkspace ||
      reserve_size < reserve_bytes(ops, *x_desc) || (adds && (z_desc == nullptr || !same(*z_desc, *x_desc))) ||
      (save_mean == nullptr) != (save_inverse == nullptr) || overlap(x_data, x_desc->bytes(), y_data, y_desc->bytes()))
    return kBad;
  // The double knows no running statistics: the library reads them, with a factor of 1 too, and a NaN would stay.
  if (!batch_norm_supported(mode, ops, x_desc, activation) || running_mean != nullptr || running_variance != nullptr)
    return kUnsupported;
  const Vices& vices = dat_double::vices(dat_double::Call::norm, 0);
  if (vices.refuses) return refused();
  if (vices.waits && cudaStreamSynchronize(handle->stream) != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  const char* const name = "cudnnBatchNormalizationForwardTrainingEx";
  const int channels = x_desc->c;
  const std::size_t samples = x_desc->elements() / channels, bytes = parameters->bytes();
  require_device(name, "x", x_data, x_desc->bytes());
  require_device(name, "y", y_data, y_desc->bytes());
  require_device(name, "the scale", scale_data, bytes);
  require_device(name, "the bias", bias_data, bytes);
  for (const void* p : {save_mean, save_inverse}) require_device(name, "a statistic", p, p == nullptr ? 0 : bytes);
  require_device(name, "the workspace", workspace, kForwardWorkspace);
  require_device(name, "the reserve space", reserve, reserve_bytes(ops, *x_desc));
  if (adds) require_device(name, "z", z_data, x_desc->bytes());
  const auto *scale = static_cast<const float*>(scale_data), *bias = static_cast<const float*>(bias_data);
  const bool leaves_out = vices.half;
  const double off = vices.off_y;
  return queue(handle, workspace, kForwardWorkspace, [=, type = *x_desc->type, a = number(alpha), b = number(beta)] {
    const Numbers x = read(x_data, type, samples * channels, false);
    auto* const open = static_cast<unsigned char*>(reserve) + kMark;
    std::memset(reserve, channels % 251, kMark);
#pragma omp parallel for schedule(static)
    for (int c = 0; c < channels; ++c) {
      const Moments m = moments(x, samples, channels, c, epsilon);
      if (save_mean != nullptr) {
        if (!leaves_out || c < channels / 2) blend(save_mean, CUDA_R_32F, c, m.mean, 0);
        blend(save_inverse, CUDA_R_32F, c, m.inverse_deviation, 0);
      }
      for (std::size_t i = 0; i < samples; ++i) {
        const std::size_t at = i * channels + c;
        double value = (x[at] - m.mean) * m.inverse_deviation * scale[c] + bias[c];
        if (adds) value += load(z_data, type, at);
        if (acts) {
          open[at] = value > 0;
          value = value > 0 || value != value ? value : 0;
        }
        blend(y_data, type, at, a * value + off, b);
      }
    }
  });
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void* alpha_data,
    const void* beta_data, const void* alpha_parameters, const void* beta_parameters,
    const cudnnTensorDescriptor_t x_desc, const void* x_data, const cudnnTensorDescriptor_t y_desc, const void* y_data,
    const cudnnTensorDescriptor_t dy_desc, const void* dy_data, const cudnnTensorDescriptor_t dz_desc, void* dz,
    const cudnnTensorDescriptor_t dx_desc, void* dx, const cudnnTensorDescriptor_t parameters, const void* scale_data,
    const void* bias_data, void* d_scale, void* d_bias, double epsilon, const void* saved_mean,
    const void* saved_inverse, cudnnActivationDescriptor_t activation, void* workspace, std::size_t workspace_size,
    void* reserve, std::size_t reserve_size) {
  const bool adds = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, acts = ops != CUDNN_BATCHNORM_OPS_BN;
  if (handle == nullptr || alpha_data == nullptr || beta_data == nullptr || alpha_parameters == nullptr ||
      beta_parameters == nullptr || !batch_norm_fits(x_desc, dy_desc, parameters) ||
      !batch_norm_fits(x_desc, dx_desc, parameters) || epsilon < CUDNN_BN_MIN_EPSILON ||
      workspace_size < kBackwardWorkspace || reserve_size < reserve_bytes(ops, *x_desc) ||
      (acts && (y_desc == nullptr || !same(*y_desc, *x_desc) || y_data == nullptr || bias_data == nullptr)) ||
      (adds &&
       (dz_desc == nullptr || !same(*dz_desc, *x_desc) || overlap(dz, x_desc->bytes(), dy_data, x_desc->bytes()))) ||
      (saved_mean == nullptr) != (saved_inverse == nullptr) || overlap(dx, x_desc->bytes(), x_data, x_desc->bytes()) ||
      overlap(dx, x_desc->bytes(), dy_data, x_desc->bytes()))
    return kBad;
  if (!batch_norm_supported(mode, ops, x_desc, activation)) return kUnsupported;
  const char* const name = "cudnnBatchNormalizationBackwardEx";
  const int channels = x_desc->c;
  const std::size_t samples = x_desc->elements() / channels, bytes = parameters->bytes();
  for (const void* p : {x_data, dy_data, static_cast<const void*>(dx)})
    require_device(name, "x, dy or dx", p, x_desc->bytes());
  for (const void* p : {scale_data, static_cast<const void*>(d_scale), static_cast<const void*>(d_bias)})
    require_device(name, "the scale or a gradient", p, bytes);
  for (const void* p : {saved_mean, saved_inverse}) require_device(name, "a statistic", p, p == nullptr ? 0 : bytes);
  require_device(name, "the workspace", workspace, kBackwardWorkspace);
  require_device(name, "the reserve space", reserve, reserve_bytes(ops, *x_desc));
  if (acts) require_device(name, "y", y_data, x_desc->bytes());
  if (adds) require_device(name, "dz", dz, x_desc->bytes());
  const auto* const scale = static_cast<const float*>(scale_data);
  return queue(handle, workspace, kBackwardWorkspace,
               [=, type = *x_desc->type, a = number(alpha_data), b = number(beta_data), pa = number(alpha_parameters),
                pb = vices(dat_double::Call::norm, 0).ignores_beta ? 0 : number(beta_parameters),
                off = vices(dat_double::Call::norm, 0).off] {
                 const Numbers x = read(x_data, type, samples * channels, false);
                 Numbers dy = read(dy_data, type, samples * channels, false);
                 const auto* mark = static_cast<const unsigned char*>(reserve);
                 for (std::size_t i = 0; acts && i < dy.size(); ++i)
                   if (mark[kMark + i] == 0) dy[i] = 0;
                 for (std::size_t i = 0; adds && i < dy.size(); ++i) blend(dz, type, i, dy[i], 0);
                 if (!std::all_of(mark, mark + kMark, [=](unsigned char v) { return v == channels % 251; }))
                   fail("batch norm's reserve space is not what the forward call left there");
#pragma omp parallel for schedule(static)
                 for (int c = 0; c < channels; ++c) {
                   Moments m = moments(x, samples, channels, c, epsilon);
                   if (saved_mean != nullptr) m = {load(saved_mean, CUDA_R_32F, c), load(saved_inverse, CUDA_R_32F, c)};
                   double sum = 0, product = 0;
                   for (std::size_t i = 0; i < samples; ++i) {
                     const std::size_t at = i * channels + c;
                     sum += dy[at];
                     product += dy[at] * (x[at] - m.mean) * m.inverse_deviation;
                   }
                   blend(d_scale, CUDA_R_32F, c, pa * product, pb);
                   blend(d_bias, CUDA_R_32F, c, pa * sum + off, pb);
                   for (std::size_t i = 0; i < samples; ++i) {
                     const std::size_t at = i * channels + c;
                     const double hat = (x[at] - m.mean) * m.inverse_deviation;
                     blend(dx, type, at,
                           a * scale[c] * m.inverse_deviation *
                               (dy[at] - sum / double(samples) - hat * product / double(samples)),
                           b);
                   }
                 }
               });
}
}
