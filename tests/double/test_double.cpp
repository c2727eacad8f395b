// The double itself: what it must find. That its libraries compute what they should follows from the laws of a device,
// which run on it.

#include "catch.hpp"
// Catch before the names of the device.
#include <cudnn.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "kernels.hpp"

using namespace dat_double;

namespace {

#define OK(call) REQUIRE((call) == cudaSuccess)
#define NN(call) REQUIRE((call) == CUDNN_STATUS_SUCCESS)

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { OK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(handle); }
  operator cudaStream_t() const { return handle; }
  void wait() const { OK(cudaStreamSynchronize(handle)); }
};
struct Event {
  cudaEvent_t handle = nullptr;
  Event() { OK(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(handle); }
  operator cudaEvent_t() const { return handle; }
};

/// `count` floats on the device, or pinned ones on the host.
struct Device {
  float* data = nullptr;
  std::size_t count;
  explicit Device(std::size_t n) : count(n) { OK(cudaMalloc(reinterpret_cast<void**>(&data), n * sizeof(float))); }
  explicit Device(const std::vector<float>& values) : Device(values.size()) {
    const Stream stream;
    OK(cudaMemcpyAsync(data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
    stream.wait();
  }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  std::vector<float> read() const {
    const Stream stream;
    std::vector<float> out(count);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpyAsync(out.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    return out;
  }
};
struct Pinned {
  float* data = nullptr;
  explicit Pinned(std::size_t n) { OK(cudaHostAlloc(reinterpret_cast<void**>(&data), n * sizeof(float), 0)); }
  ~Pinned() { cudaFreeHost(data); }
  Pinned(const Pinned&) = delete;
};

/// The signal that ends a process which does this.
template <class F>
int ends_by(const F& f) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGABRT, SIG_DFL);
    omp_set_num_threads(1);  // the threads of the parent are not there
    std::freopen("/dev/null", "w", stderr);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

__global__ void add(float* x, float value, int n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < static_cast<unsigned>(n)) x[i] += value;
}
void launch_add(cudaStream_t stream, float* x, float value, int n) {
  DAT_LAUNCH(&add, (n + 31) / 32, 32, stream, x, value, n);
}

/// out[block] = sum of the block's numbers: warps by shuffles, then over shared memory. Without the barrier it is
/// wrong.
template <bool Barrier>
__global__ void block_sum(const float* x, float* out) {
  __shared__ float warps[8];
  float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, d);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  if (Barrier) __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) total += warps[w];
    out[blockIdx.x] = total;
  }
  if (Barrier) __syncthreads();
}
__global__ void half_a_barrier() {
  if (threadIdx.x < 16) __syncthreads();
}

}  // namespace

TEST_CASE("A result is there after a wait, and not before", "[double]") {
  const Stream stream;
  const Device device(4);
  const Pinned in(4), out(4);
  std::fill_n(in.data, 4, 1.0F);
  std::fill_n(out.data, 4, 7.0F);
  OK(cudaMemcpyAsync(device.data, in.data, 16, cudaMemcpyDefault, stream));
  launch_add(stream, device.data, 2, 4);
  OK(cudaMemcpyAsync(out.data, device.data, 16, cudaMemcpyDefault, stream));
  CHECK(out.data[3] == 7);
  in.data[3] = 5;  // too early
  stream.wait();
  CHECK(out.data[0] == 3);
  CHECK(out.data[3] == 7);
}

TEST_CASE("A pageable source is copied at once, a pageable target waits; both are counted", "[double]") {
  const Stream stream;
  const Device device(40000);
  std::vector<float> values(40000, 1.0F);
  counts() = {};
  OK(cudaMemcpyAsync(device.data, values.data(), 160000, cudaMemcpyHostToDevice, stream));
  values[0] = 5;
  OK(cudaMemcpyAsync(values.data(), device.data, 160000, cudaMemcpyDeviceToHost, stream));
  CHECK(values[0] == 1);
  CHECK(counts().pageable_copies == 2);
  CHECK(counts().synchronizations == 2);
}

TEST_CASE("Events order streams; without them the other stream has not run", "[double]") {
  const bool wait = GENERATE(false, true);
  const Stream a, b;
  const Device x(4), y(4);
  const Pinned out(4);
  const Event event;
  OK(cudaMemsetAsync(x.data, 0, 16, a));
  launch_add(a, x.data, 1, 4);
  OK(cudaEventRecord(event, a));
  if (wait) OK(cudaStreamWaitEvent(b, event, 0));
  launch_add(a, x.data, 1, 4);
  OK(cudaEventRecord(event, a));  // later than the wait: of no importance for it
  OK(cudaMemcpyAsync(y.data, x.data, 16, cudaMemcpyDeviceToDevice, b));
  OK(cudaMemcpyAsync(out.data, y.data, 16, cudaMemcpyDefault, b));
  b.wait();
  CHECK((wait ? out.data[0] == 1 : std::isnan(out.data[0])));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(x.read()[0] == 2);
}

TEST_CASE("A captured graph runs when it is launched, each time, with its second stream", "[double]") {
  const Stream a, b;
  const Device x(std::vector<float>(4, 0)), y(std::vector<float>(4, 0));
  const Event fork, join;
  counts() = {};
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  launch_add(a, x.data, 1, 4);
  OK(cudaEventRecord(fork, a));
  OK(cudaStreamWaitEvent(b, fork, 0));
  OK(cudaMemcpyAsync(y.data, x.data, 16, cudaMemcpyDefault, b));
  OK(cudaEventRecord(join, b));
  OK(cudaStreamWaitEvent(a, join, 0));
  launch_add(a, x.data, 10, 4);
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(a, &graph));
  CHECK(x.read()[0] == 0);
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 2; ++i) OK(cudaGraphLaunch(exec, b));
  OK(cudaGraphExecDestroy(exec));
  CHECK(x.read()[0] == 22);
  CHECK(y.read()[0] == 12);
  CHECK(counts().graph_launches == 2);
  CHECK(counts().kernels == 2);
}

TEST_CASE("What may not happen during a capture ends it", "[double]") {
  const Stream a, b;
  const Event event;
  void* p = nullptr;
  const Device x(4);
  std::array<float, 4> pageable{};
  const int what = GENERATE(range(0, 7));
  OK(cudaEventRecord(event, b));
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  cudaError_t error = cudaSuccess, end = cudaErrorStreamCaptureInvalidated;
  if (what == 0) error = cudaMalloc(&p, 16);
  if (what == 1) error = cudaHostAlloc(&p, 16, 0);
  if (what == 2) error = cudaStreamSynchronize(a);
  if (what == 3) error = cudaDeviceSynchronize();
  if (what == 4) error = cudaMemcpyAsync(x.data, pageable.data(), 16, cudaMemcpyDefault, a);
  if (what < 5) CHECK(error == cudaErrorStreamCaptureUnsupported);
  if (what == 5) CHECK(cudaStreamWaitEvent(a, event, 0) == cudaErrorStreamCaptureIsolation);
  if (what == 6) {
    OK(cudaEventRecord(event, a));
    OK(cudaStreamWaitEvent(b, event, 0));
    launch_add(b, x.data, 1, 4);
    end = cudaErrorStreamCaptureUnjoined;
  }
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(a, &graph) == end);
  CHECK(graph == nullptr);
  a.wait();
}

TEST_CASE("Wrong addresses and handles are found", "[double]") {
  const Stream stream;
  const Device x(100);
  float* const data = x.data;
  std::array<float, 100> host{};
  CHECK(ends_by([&] { data[0] = 1; }) == SIGSEGV);
  CHECK(ends_by([&] { launch_add(stream, host.data(), 1, 100); }) == SIGABRT);
  CHECK(ends_by([&] {
          launch_add(stream, data, 1, 101);
          cudaStreamSynchronize(stream);
        }) == SIGABRT);
  CHECK(ends_by([&] {
          cudaFree(data);
          launch_add(stream, data, 1, 100);
        }) == SIGABRT);
  CHECK(ends_by([&] { DAT_LAUNCH(&add, 1, 2048, stream, data, 1.0F, 1); }) == SIGABRT);
  CHECK(cudaFree(host.data()) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(data, host.data(), 404, cudaMemcpyDefault, stream) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(data, host.data(), 400, cudaMemcpyDeviceToHost, stream) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(data, 0, 4, nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaSuccess);
  DAT_LAUNCH(&add, 0, 32, stream, data, 1.0F, 0);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  void* huge = nullptr;
  CHECK(cudaMalloc(&huge, std::size_t{1} << 40) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);  // or the next test's first kernel is blamed for it
}

TEST_CASE("Freed memory is used again, and is NaN again", "[double]") {
  std::size_t before = 0, after = 0, total = 0;
  float* first = nullptr;
  OK(cudaMemGetInfo(&before, &total));
  {
    const Device x(std::vector<float>(1000, 1));
    first = x.data;
  }
  const Device x(1000);
  CHECK(x.data == first);
  CHECK(std::isnan(x.read()[999]));
  OK(cudaMemGetInfo(&after, &total));
  CHECK(after < before);
}

TEST_CASE("The threads of a block work together", "[double]") {
  const Stream stream;
  std::vector<float> values(4 * 256);
  std::iota(values.begin(), values.end(), 0.0F);
  const Device x(values), out(4);
  DAT_LAUNCH_BLOCKS(&block_sum<true>, 4, 256, stream, x.data, out.data);
  const auto right = out.read();
  for (int b = 0; b < 4; ++b) CHECK(right[b] == 256.0F * (256.0F * static_cast<float>(b) + 127.5F));
  DAT_LAUNCH_BLOCKS(&block_sum<false>, 4, 256, stream, x.data, out.data);
  CHECK(out.read() != right);
  CHECK(ends_by([&] {
          DAT_LAUNCH_BLOCKS(&half_a_barrier, 1, 32, stream);
          cudaStreamSynchronize(stream);
        }) == SIGABRT);
}

TEST_CASE("What cuDNN does not support, and descriptors, workspaces and memory that do not fit, are refused",
          "[double]") {
  const Stream stream;
  const Device x(2 * 5 * 5 * 4), w(6 * 3 * 3 * 4), y(2 * 3 * 3 * 6), bias(6), workspace(100000);
  const std::vector<float> host(x.count);
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x_desc = nullptr, y_desc = nullptr, bias_desc = nullptr;
  cudnnFilterDescriptor_t w_desc = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  cudnnActivationDescriptor_t activation = nullptr;
  NN(cudnnCreate(&handle));
  NN(cudnnSetStream(handle, stream));
  for (auto* const desc : {&x_desc, &y_desc, &bias_desc}) NN(cudnnCreateTensorDescriptor(desc));
  NN(cudnnCreateFilterDescriptor(&w_desc));
  NN(cudnnCreateConvolutionDescriptor(&conv));
  NN(cudnnCreateActivationDescriptor(&activation));
  NN(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 4, 5, 5));
  NN(cudnnSetTensor4dDescriptor(bias_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 6, 1, 1));
  NN(cudnnSetFilter4dDescriptor(w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 6, 4, 3, 3));
  NN(cudnnSetConvolution2dDescriptor(conv, 1, 1, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  NN(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0));
  const float one = 1, zero = 0;
  const auto forward = [&](cudnnConvolutionFwdAlgo_t algo, std::size_t bytes, const float* from) {
    return cudnnConvolutionForward(handle, &one, x_desc, from, w_desc, w.data, conv, algo, workspace.data, bytes, &zero,
                                   y_desc, y.data);
  };
  const auto precomputed = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  const auto implicit = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  const auto with_y = [&](cudnnTensorFormat_t format, int width) {
    NN(cudnnSetTensor4dDescriptor(y_desc, format, CUDNN_DATA_FLOAT, 2, 6, 3, width));
    return forward(implicit, 0, x.data);
  };
  CHECK(with_y(CUDNN_TENSOR_NHWC, 4) == CUDNN_STATUS_BAD_PARAM);
  CHECK(with_y(CUDNN_TENSOR_NCHW, 3) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(with_y(CUDNN_TENSOR_NHWC, 3) == CUDNN_STATUS_SUCCESS);
  const std::size_t bytes = 1024 + w.count * sizeof(float);
  CHECK(forward(precomputed, bytes - 1, x.data) == CUDNN_STATUS_BAD_PARAM);
  CHECK(forward(precomputed, bytes, x.data) == CUDNN_STATUS_SUCCESS);
  CHECK(forward(CUDNN_CONVOLUTION_FWD_ALGO_GEMM, 400000, x.data) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(ends_by([&] { forward(implicit, 0, host.data()); }) == SIGABRT);
  const auto fused = [&](cudnnConvolutionFwdAlgo_t algo) {
    return cudnnConvolutionBiasActivationForward(handle, &one, x_desc, x.data, w_desc, w.data, conv, algo,
                                                 workspace.data, 400000, &one, y_desc, y.data, bias_desc, bias.data,
                                                 activation, y_desc, y.data);
  };
  CHECK(fused(implicit) == CUDNN_STATUS_NOT_SUPPORTED);  // the identity is for one algorithm
  CHECK(fused(precomputed) == CUDNN_STATUS_SUCCESS);
  OK(cudaStreamSynchronize(stream));
  cudnnDestroyActivationDescriptor(activation);
  cudnnDestroyConvolutionDescriptor(conv);
  cudnnDestroyFilterDescriptor(w_desc);
  for (const auto desc : {x_desc, y_desc, bias_desc}) cudnnDestroyTensorDescriptor(desc);
  cudnnDestroy(handle);
}
