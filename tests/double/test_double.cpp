// The double itself: what it must find, and that its libraries compute what they should.

#include "catch.hpp"
// Catch before the names of the device.
#include <cublas_v2.h>
#include <cudnn.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "definitions.hpp"
#include "kernels.hpp"
#include "random_values.hpp"
#include "storage.hpp"

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

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 words(seed);
  std::vector<float> out(count);
  for (float& v : out) v = static_cast<float>(words() >> 8) * 0x1p-23F - 1;
  return out;
}

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

TEST_CASE("Matrix products agree with the textbook, with TF32 only where it is asked for", "[double]") {
  const auto op_a = GENERATE(CUBLAS_OP_N, CUBLAS_OP_T), op_b = GENERATE(CUBLAS_OP_N, CUBLAS_OP_T);
  const bool tf32 = GENERATE(false, true);
  constexpr int m = 5, n = 4, k = 7, ld = 9;
  const auto a = numbers(ld * 9, 1), b = numbers(ld * 9, 2), c = numbers(ld * n, 3), v = numbers(ld, 4);
  const Device da(a), db(b), dc(c), dv(v), dw(c);
  const Stream stream;
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  const float alpha = 0.5F, beta = -2;
  REQUIRE(cublasGemmEx(handle, op_a, op_b, m, n, k, &alpha, da.data, CUDA_R_32F, ld, db.data, CUDA_R_32F, ld, &beta,
                       dc.data, CUDA_R_32F, ld, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  const int rows = op_a == CUBLAS_OP_N ? m : k, inner = op_a == CUBLAS_OP_N ? k : m;
  REQUIRE(cublasSgemv(handle, op_a, m, k, &alpha, da.data, ld, dv.data, 1, &beta, dw.data, 1) == CUBLAS_STATUS_SUCCESS);
  const auto at = [&](const std::vector<float>& matrix, cublasOperation_t op, int row, int column) {
    return double{op == CUBLAS_OP_N ? matrix[column * ld + row] : matrix[row * ld + column]};
  };
  const auto product = dc.read(), vector = dw.read();
  double worst = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) sum += at(a, op_a, i, l) * at(b, op_b, l, j);
      worst = dat::test::worse(worst, std::abs(0.5 * sum - 2.0 * c[j * ld + i] - product[j * ld + i]));
    }
  CHECK((tf32 ? worst > 1e-5 && worst < 7 * 1e-3 : worst < 1e-6));
  for (int i = 0; i < rows; ++i) {
    double sum = 0;
    for (int l = 0; l < inner; ++l) sum += at(a, op_a, i, l) * v[l];
    CHECK(std::abs(0.5 * sum - 2.0 * c[i] - vector[i]) < 1e-6);
  }
  cublasDestroy(handle);
}

TEST_CASE("Products of half numbers are rounded once", "[double]") {
  const Stream stream;
  const Device x(1), c(1);
  enqueue(stream, [data = x.data] {
    blend(data, CUDA_R_16F, 0, 1 + 0x1p-10, 0);
    blend(data, CUDA_R_16F, 1, 3, 0);
  });
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  cublasSetStream(handle, stream);
  const float one = 1, zero = 0;
  const auto call = [&](cudaDataType type) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.data, CUDA_R_16F, 1, x.data, CUDA_R_16F, 1,
                        &zero, c.data, type, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  CHECK(call(CUDA_R_16BF) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(call(CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(c.read()[0] == (1 + 0x1p-10F) * (1 + 0x1p-10F));
  cublasDestroy(handle);
}

namespace {

/// A convolution by the textbook: y, dx and dw, and the descriptors of the same.
struct Convolution {
  static constexpr int n = 2, c = 4, k = 6, size = 5, filter = 3, out = 3;
  std::vector<float> x = numbers(n * size * size * c, 1), w = numbers(k * filter * filter * c, 2),
                     dy = numbers(n * out * out * k, 3);
  std::vector<double> y = std::vector<double>(dy.size()), dx = std::vector<double>(x.size()),
                      dw = std::vector<double>(w.size());
  Stream stream;
  Device dev_x{x}, dev_w{w}, dev_dy{dy}, dev_y{dy}, workspace{100000};
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x_desc = nullptr, y_desc = nullptr, bias_desc = nullptr;
  cudnnFilterDescriptor_t w_desc = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  cudnnActivationDescriptor_t activation = nullptr;
  const float one = 1, zero = 0;

  Convolution() {
    const dat::ConvSpec spec{.n = n, .c_in = c, .h = size, .w = size, .c_out = k, .stride = 2};
    dat::test::for_each_term(spec, [&](std::size_t xi, std::size_t wi, std::size_t yi) {
      y[yi] += double{x[xi]} * w[wi];
      dx[xi] += double{dy[yi]} * w[wi];
      dw[wi] += double{dy[yi]} * x[xi];
    });
    NN(cudnnCreate(&handle));
    NN(cudnnSetStream(handle, stream));
    NN(cudnnCreateTensorDescriptor(&x_desc));
    NN(cudnnCreateTensorDescriptor(&y_desc));
    NN(cudnnCreateTensorDescriptor(&bias_desc));
    NN(cudnnCreateFilterDescriptor(&w_desc));
    NN(cudnnCreateConvolutionDescriptor(&conv));
    NN(cudnnCreateActivationDescriptor(&activation));
    NN(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, n, c, size, size));
    NN(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, n, k, out, out));
    NN(cudnnSetTensor4dDescriptor(bias_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, k, 1, 1));
    NN(cudnnSetFilter4dDescriptor(w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, k, c, filter, filter));
    NN(cudnnSetConvolution2dDescriptor(conv, 1, 1, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    NN(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH));
  }
  ~Convolution() {
    cudnnDestroyActivationDescriptor(activation);
    cudnnDestroyConvolutionDescriptor(conv);
    cudnnDestroyFilterDescriptor(w_desc);
    for (const auto desc : {x_desc, y_desc, bias_desc}) cudnnDestroyTensorDescriptor(desc);
    cudnnDestroy(handle);
  }

  cudnnStatus_t forward(cudnnConvolutionFwdAlgo_t algo, std::size_t bytes) {
    return cudnnConvolutionForward(handle, &one, x_desc, dev_x.data, w_desc, dev_w.data, conv, algo, workspace.data,
                                   bytes, &zero, y_desc, dev_y.data);
  }
};

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i) worst = dat::test::worse(worst, std::abs(a[i] - b[i]));
  return worst;
}

}  // namespace

// Tolerances: sums of less than 64 products below 1, computed in double and rounded once, 2^-24 of less than 64; sums
// that are wrong by a fifth, or TF32, are off by more than 1e-4.

TEST_CASE("Convolutions agree with the textbook; the wrong ones do not", "[double]") {
  Convolution t;
  int found = 0;
  std::array<cudnnConvolutionFwdAlgoPerf_t, 8> forward{};
  NN(cudnnGetConvolutionForwardAlgorithm_v7(t.handle, t.x_desc, t.w_desc, t.conv, t.y_desc, 8, &found, forward.data()));
  REQUIRE(found == 4);
  CHECK(forward[3].status == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(t.forward(forward[3].algo, 400000) == CUDNN_STATUS_NOT_SUPPORTED);
  for (int i = 0; i < 3; ++i) {
    if (forward[i].memory > 0) CHECK(t.forward(forward[i].algo, forward[i].memory - 1) == CUDNN_STATUS_BAD_PARAM);
    NN(t.forward(forward[i].algo, forward[i].memory));
    CHECK((distance(t.dev_y.read(), t.y) > 1e-4) == (forward[i].algo == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD));
  }
  NN(cudnnSetConvolutionMathType(t.conv, CUDNN_DEFAULT_MATH));
  NN(t.forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0));
  CHECK(distance(t.dev_y.read(), t.y) > 1e-4);
  NN(cudnnSetConvolutionMathType(t.conv, CUDNN_FMA_MATH));

  std::array<cudnnConvolutionBwdDataAlgoPerf_t, 8> data{};
  NN(cudnnGetConvolutionBackwardDataAlgorithm_v7(t.handle, t.w_desc, t.y_desc, t.conv, t.x_desc, 8, &found,
                                                 data.data()));
  REQUIRE(found == 3);
  const Device dx(t.x);
  for (int i = 0; i < 3; ++i) {
    std::array<std::vector<float>, 2> result;
    for (auto& r : result) {
      NN(cudnnConvolutionBackwardData(t.handle, &t.one, t.w_desc, t.dev_w.data, t.y_desc, t.dev_dy.data, t.conv,
                                      data[i].algo, t.workspace.data, data[i].memory, &t.zero, t.x_desc, dx.data));
      r = dx.read();
    }
    CHECK((distance(result[0], t.dx) > 1e-4) == (data[i].algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED));
    CHECK((result[0] == result[1]) == (data[i].determinism == CUDNN_DETERMINISTIC));
  }

  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 8> filter{};
  NN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(t.handle, t.x_desc, t.y_desc, t.conv, t.w_desc, 8, &found,
                                                   filter.data()));
  REQUIRE(found == 3);
  CHECK(filter[0].memory == std::size_t{1} << 40);
  const Device dw(t.w);
  const float two = 2, minus = -1;  // dw = 2 dw' - dw
  NN(cudnnConvolutionBackwardFilter(t.handle, &two, t.x_desc, t.dev_x.data, t.y_desc, t.dev_dy.data, t.conv,
                                    filter[2].algo, t.workspace.data, filter[2].memory, &minus, t.w_desc, dw.data));
  std::vector<double> expected(t.dw);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 2 * t.dw[i] - t.w[i];
  CHECK(distance(dw.read(), expected) < 1e-5);
}

TEST_CASE("A fused convolution adds z, which may be y; identity needs the one algorithm", "[double]") {
  Convolution t;
  const auto bias = numbers(Convolution::k, 9);
  const Device dev_bias(bias);
  const auto mode = GENERATE(CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_IDENTITY);
  const auto call = [&](cudnnConvolutionFwdAlgo_t algo) {
    NN(cudnnSetActivationDescriptor(t.activation, mode, CUDNN_NOT_PROPAGATE_NAN, 0));
    return cudnnConvolutionBiasActivationForward(t.handle, &t.one, t.x_desc, t.dev_x.data, t.w_desc, t.dev_w.data,
                                                 t.conv, algo, t.workspace.data, 400000, &t.one, t.y_desc, t.dev_y.data,
                                                 t.bias_desc, dev_bias.data, t.activation, t.y_desc, t.dev_y.data);
  };
  if (mode == CUDNN_ACTIVATION_IDENTITY)
    CHECK(call(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) == CUDNN_STATUS_NOT_SUPPORTED);
  NN(call(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM));
  std::vector<double> expected(t.y.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = t.y[i] + t.dy[i] + bias[i % Convolution::k];
    if (mode == CUDNN_ACTIVATION_RELU) expected[i] = std::max(expected[i], 0.0);
  }
  CHECK(distance(t.dev_y.read(), expected) < 1e-5);
}

TEST_CASE("Mismatched descriptors, other formats and host memory are refused", "[double]") {
  Convolution t;
  NN(cudnnSetTensor4dDescriptor(t.y_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 6, 3, 4));
  CHECK(t.forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0) == CUDNN_STATUS_BAD_PARAM);
  NN(cudnnSetTensor4dDescriptor(t.y_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 6, 3, 3));
  CHECK(t.forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0) == CUDNN_STATUS_NOT_SUPPORTED);
  NN(cudnnSetTensor4dDescriptor(t.y_desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 6, 3, 3));
  NN(t.forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0));
  CHECK(ends_by([&] {
          cudnnConvolutionForward(t.handle, &t.one, t.x_desc, t.x.data(), t.w_desc, t.dev_w.data, t.conv,
                                  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &t.zero, t.y_desc,
                                  t.dev_y.data);
        }) == SIGABRT);
}

TEST_CASE("Batch norm agrees with its definition, its gradients with finite differences", "[double]") {
  constexpr int n = 3, c = 4, size = 2, m = n * size * size;
  constexpr double epsilon = 1e-3;
  const auto x = numbers(m * c, 1), dy = numbers(m * c, 2), scale = numbers(c, 3), bias = numbers(c, 4);
  const auto norm = [&](const std::vector<double>& in, const std::vector<double>& gamma, std::vector<double>* mean,
                        std::vector<double>* variance) {
    std::vector<double> out(in.size());
    for (int j = 0; j < c; ++j) {
      double mu = 0, var = 0;
      for (int i = 0; i < m; ++i) mu += in[i * c + j] / m;
      for (int i = 0; i < m; ++i) var += (in[i * c + j] - mu) * (in[i * c + j] - mu) / m;
      for (int i = 0; i < m; ++i) out[i * c + j] = (in[i * c + j] - mu) / std::sqrt(var + epsilon) * gamma[j] + bias[j];
      if (mean != nullptr) (*mean)[j] = mu, (*variance)[j] = var;
    }
    return out;
  };
  const std::vector<double> exact(x.begin(), x.end()), gamma(scale.begin(), scale.end());
  std::vector<double> mean(c), variance(c);
  const auto y = norm(exact, gamma, &mean, &variance);

  const Stream stream;
  const Device dev_x(x), dev_dy(dy), dev_scale(scale), dev_bias(bias), dev_y(m * c), dx(m * c), d_scale(c), d_bias(c),
      running_mean(std::vector<float>(c, 1)), running_variance(std::vector<float>(c, 1)), save_mean(c), save_inverse(c),
      workspace(1000), reserve(1000);
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t desc = nullptr, parameters = nullptr;
  NN(cudnnCreate(&handle));
  NN(cudnnSetStream(handle, stream));
  NN(cudnnCreateTensorDescriptor(&desc));
  NN(cudnnCreateTensorDescriptor(&parameters));
  NN(cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, n, c, size, size));
  NN(cudnnDeriveBNTensorDescriptor(parameters, desc, CUDNN_BATCHNORM_SPATIAL_PERSISTENT));
  const float one = 1, zero = 0;
  const auto mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
  const auto ops = CUDNN_BATCHNORM_OPS_BN;
  NN(cudnnBatchNormalizationForwardTrainingEx(handle, mode, ops, &one, &zero, desc, dev_x.data, nullptr, nullptr, desc,
                                              dev_y.data, parameters, dev_scale.data, dev_bias.data, 0.1,
                                              running_mean.data, running_variance.data, epsilon, save_mean.data,
                                              save_inverse.data, nullptr, workspace.data, 4000, reserve.data, 4000));
  const auto backward = [&](float* to) {
    return cudnnBatchNormalizationBackwardEx(
        handle, mode, ops, &one, &zero, &one, &zero, desc, dev_x.data, nullptr, nullptr, desc, dev_dy.data, nullptr,
        nullptr, desc, to, parameters, dev_scale.data, nullptr, d_scale.data, d_bias.data, epsilon, save_mean.data,
        save_inverse.data, nullptr, workspace.data, 4000, reserve.data, 4000);
  };
  CHECK(backward(dev_dy.data) == CUDNN_STATUS_BAD_PARAM);
  CHECK(backward(dev_x.data) == CUDNN_STATUS_BAD_PARAM);
  NN(backward(dx.data));
  CHECK(distance(dev_y.read(), y) < 1e-6);
  const auto rm = running_mean.read(), rv = running_variance.read();
  for (int j = 0; j < c; ++j) {
    CHECK(rm[j] == Approx(0.9 + 0.1 * mean[j]));
    CHECK(rv[j] == Approx(0.9 + 0.1 * variance[j] * m / (m - 1)));
  }

  // Central differences with a step of 1e-5: off by about 1e-10 times a third derivative.
  const auto loss = [&](const std::vector<double>& in, const std::vector<double>& g) {
    const auto out = norm(in, g, nullptr, nullptr);
    return std::inner_product(out.begin(), out.end(), dy.begin(), 0.0);
  };
  const auto slopes = [&](std::vector<double> at, const auto& f) {
    std::vector<double> out;
    for (double& v : at) {
      const double old = v;
      v = old + 1e-5;
      const double up = f(at);
      v = old - 1e-5;
      out.push_back((up - f(at)) / 2e-5);
      v = old;
    }
    return out;
  };
  CHECK(distance(dx.read(), slopes(exact, [&](const auto& v) { return loss(v, gamma); })) < 1e-5);
  CHECK(distance(d_scale.read(), slopes(gamma, [&](const auto& v) { return loss(exact, v); })) < 1e-5);
  std::vector<double> sums(c);
  for (int i = 0; i < m * c; ++i) sums[i % c] += dy[i];
  CHECK(distance(d_bias.read(), sums) < 1e-6);
  cudnnDestroyTensorDescriptor(desc);
  cudnnDestroyTensorDescriptor(parameters);
  cudnnDestroy(handle);
}
