#include "backend/cuda/backend.hpp"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "backend/cuda/factory.hpp"
#include "backend/cuda/pass_plan.hpp"
#include "backend/shared/calls.hpp"
#include "backend/shared/less_memory.hpp"
#include "pointwise.hpp"

#ifndef DAT_CUDA_ARCHITECTURES
#define DAT_CUDA_ARCHITECTURES "unknown"
#endif

namespace dat {

namespace {

[[nodiscard]] std::string dotted(int cuda_version) {  // 13000 is 13.0
  return std::to_string(cuda_version / 1000) + "." + std::to_string(cuda_version % 1000 / 10);
}

}  // namespace

std::string cuda_missing() {
  int devices{}, driver{};
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return {};
  (void)cudaGetLastError();
  (void)cudaDriverGetVersion(&driver);
  if (driver == 0) return "this machine has no NVIDIA driver";
  if (status == cudaErrorInsufficientDriver)
    return "the NVIDIA driver is for CUDA " + dotted(driver) + ", this program needs " + dotted(CUDART_VERSION) +
           ": update the driver, or build with an older toolkit";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return std::string("no GPU is to be seen") +
         (visible != nullptr ? std::string(" (CUDA_VISIBLE_DEVICES=") + visible + ")" : "") +
         (status != cudaSuccess ? std::string(": ") + cudaGetErrorString(status) : "");
}

std::string cuda_version() { return dotted(CUDART_VERSION) + ", cuDNN " + cuda::cudnn_version(); }

std::vector<int> numa_nodes_of_gpus(const std::string& root) {
  std::vector<int> nodes;
  int devices{};
  if (!cuda_missing().empty()) return nodes;
  cuda::check(cudaGetDeviceCount(&devices));
  for (int k = 0; k < devices; ++k) nodes.push_back(cuda::numa_node_of(k, root));
  return nodes;
}

std::string cuda_report() {
  std::ostringstream text;
  int driver{}, runtime{}, devices{};
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  text << "driver    " << (driver == 0 ? "none" : "for CUDA " + dotted(driver)) << "\ntoolkit   CUDA "
       << dotted(CUDART_VERSION) << ", runtime " << dotted(runtime) << "\ncuDNN     " << cuda::cudnn_version()
       << " (built with " << CUDNN_MAJOR << "." << CUDNN_MINOR << "." << CUDNN_PATCHLEVEL
       << ")\nGPU code  for compute capability " << DAT_CUDA_ARCHITECTURES << "\n";
  const std::string missing = cuda_missing();
  if (!missing.empty()) {
    text << "GPU       none usable: " << missing << "\n";
    return text.str();
  }
  cuda::check(cudaGetDeviceCount(&devices));
  for (int k = 0; k < devices; ++k) {
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, k));
    text << "GPU " << k << "     " << properties.name << ", compute capability " << properties.major << "."
         << properties.minor << ", " << (properties.totalGlobalMem >> 20U) << " MiB";
    try {
      const auto backend = make_cuda_backend({.device = "cuda", .gpu = k});
      text << ", " << (backend->spare_memory() >> 20U) << " MiB free: usable\ngraph API "
           << cuda::graph_report(dynamic_cast<cuda::CudaBackend&>(*backend)) << "\n";
    } catch (const Error& error) {
      text << ": not usable: " << error.what() << "\n";
    }
  }
  return text.str();
}

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  cuda::check(cudaSetDevice(options.gpu));
  return std::make_unique<cuda::CudaBackend>(options);
}

namespace cuda {

namespace {
constexpr std::size_t kHalf = 8U << 20U;

/// Versions that a choice of plans depends on beside the GPU. The number is raised with the plans that are offered, or
/// the way they are timed.
[[nodiscard]] std::string driver() {
  int version{};
  check(cudaDriverGetVersion(&version));
  return "driver for CUDA " + dotted(version) + ", cuDNN " + cudnn_version() + ", 2";
}
constexpr std::size_t kCublasWorkspace = 32U << 20U;  // bytes that cuBLAS recommends for Hopper

[[nodiscard]] bool happened(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // or the next kernel would be blamed for it
    return false;
  }
  check(status);
  return true;
}
}  // namespace

int numa_node_of(int gpu, const std::string& root) {
  char id[32] = {};
  if (cudaDeviceGetPCIBusId(id, sizeof id, gpu) != cudaSuccess) {
    (void)cudaGetLastError();  // or the next kernel would be blamed for it
    return -1;
  }
  std::string name = id;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file(root + "/sys/bus/pci/devices/" + name + "/numa_node");
  int node{};
  return file >> node ? node : -1;
}

Gpu::Gpu() {
  check(cudaGetDevice(&index));
  check(cudaGetDeviceCount(&count));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index));
  name = properties.name;
  numa_node = numa_node_of(index);
  constexpr char kHex[] = "0123456789abcdef";
  for (const char byte : properties.uuid.bytes) {
    id += kHex[static_cast<unsigned char>(byte) >> 4U];
    id += kHex[static_cast<unsigned char>(byte) & 15U];
  }
  memory = properties.totalGlobalMem;
  capability = 10 * properties.major + properties.minor;
  // GTX 16 are the GPUs of capability 7.5 without tensor cores, and nothing but their name says so.
  tensor_cores = capability >= 70 && name.find("GTX 16") == std::string::npos;
  // The last version with code for Pascal and Volta (NVIDIA's support matrix) is 9.10.
  const bool too_old = capability < 75 && cudnnGetVersion() >= 91100;
  require(!too_old, ExitCode::device, "cuDNN ", cudnn_version(), " has no code for ", name, " (compute capability ",
          capability / 10, ".", capability % 10, "); build with cuDNN 9.10 or older");
}

CudaBackend::CudaBackend(const BackendOptions& options)
    : options_(options), planning_time_(options.planning_seconds), tickets_(kTickets), stamps_(kStamps) {
  check(cudnnSetStream(cudnn_, stream_));
  check(cublasSetStream(cublas_, stream_));
  // Scratch memory of our own, so that cuBLAS allocates nothing while work is recorded.
  check(cublasSetWorkspace(cublas_, allocate(kCublasWorkspace, "library scratch"), kCublasWorkspace));
  for (Half& half : staging_.halves) half.data = static_cast<char*>(allocate_pinned(kHalf, "staging"));

  // A first kernel, to learn here whether this build has code for this GPU.
  float* probe = allocate_floats(1, "probe");
  each(device(), 1, kernels::Scale{probe, probe, 1.0F, false});
  wait();
  if (!options.deterministic && !options.plans.empty())
    plan_cache_ = std::make_unique<PlanCache>(options.plans, gpu_.name + ", " + driver(), options.node_rank == 0);
}

CudaBackend::~CudaBackend() { (void)cudaDeviceSynchronize(); }

std::string CudaBackend::description() const {
  std::ostringstream text;
  text << "cuda: " << gpu_.name << " (GPU " << gpu_.index << " of " << gpu_.count
       << (gpu_.numa_node >= 0 ? ", NUMA node " + std::to_string(gpu_.numa_node) : "") << ", compute capability "
       << gpu_.capability / 10 << "." << gpu_.capability % 10 << "), cuDNN " << cudnn_version()
       << (tf32() ? ", TF32" : ", f32") << (deterministic() ? ", deterministic" : "");
  return text.str();
}

std::string CudaBackend::arithmetic() const {
  std::string text = "cuda: cuDNN " + cudnn_version() + (tf32() ? ", TF32" : ", f32");
  if (deterministic()) text += ", deterministic, compute capability " + std::to_string(gpu_.capability);
  return text;
}

std::string CudaBackend::refuses(DType storage) const {
  return storage == DType::bf16 && gpu_.capability < 80 ? gpu_.name + " does not compute in bf16; use f16" : "";
}

void* CudaBackend::allocate(std::size_t bytes, const std::string& purpose) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free{}, all{};
    check(cudaMemGetInfo(&free, &all));
    fail(ExitCode::device, "out of GPU memory: ", bytes >> 20U, " MiB for ", purpose, ", ", free >> 20U, " MiB free",
         less_memory(allocations_, bytes, purpose, all), ", or fewer ranks per GPU");
  }
  check(status);
  memory_.emplace_back(data);
  allocations_.push_back({purpose, bytes});
  check(cudaMemsetAsync(data, 0, std::max<std::size_t>(bytes, 1), stream_));
  return data;
}

void* CudaBackend::allocate_pinned(std::size_t bytes, const std::string& purpose) {
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, std::max<std::size_t>(bytes, 1), cudaHostAllocDefault);
  require(status == cudaSuccess, ExitCode::device, "cannot have ", bytes >> 20U, " MiB of pinned host memory for ",
          purpose, ": ", cudaGetErrorString(status));
  pinned_.emplace_back(data);
  std::memset(data, 0, bytes);
  return data;
}

std::shared_ptr<void> CudaBackend::pin(void* data, std::size_t bytes) {
  const cudaError_t status = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
  require(status == cudaSuccess, ExitCode::device, "cannot pin ", bytes >> 20U,
          " MiB of shared memory: ", cudaGetErrorString(status));
  return {data, [this](void* pinned) {
            (void)cudaStreamSynchronize(stream_);  // nothing is on its way there
            (void)cudaStreamSynchronize(copies_);
            (void)cudaHostUnregister(pinned);
          }};
}

std::size_t CudaBackend::spare_memory() const {
  std::size_t free{}, total{};
  check(cudaMemGetInfo(&free, &total));
  return free;
}

void CudaBackend::commit(SharedBlock& shared, const std::string& purpose) {
  if (shared.suffices()) return;
  if (shared.data != nullptr) {
    wait();
    std::erase_if(memory_, [&](const auto& one) { return one.get() == shared.data; });
    std::erase_if(allocations_, [&](const Allocation& a) { return a.purpose == purpose && a.bytes == shared.bytes; });
    shared.data = nullptr;
    ++moves_;
  }
  shared.data = allocate(shared.wanted, purpose);
  shared.bytes = shared.wanted;
}

std::vector<cudnnHandle_t> CudaBackend::builders(std::size_t most) {
  const std::size_t count = std::min(most, static_cast<std::size_t>(std::max(options_.threads, 1)));
  while (builders_.size() < count) check(cudnnSetStream(builders_.emplace_back(), stream_));
  return {builders_.begin(), builders_.begin() + static_cast<std::ptrdiff_t>(count)};
}

void CudaBackend::tried(Trial trial) {
  if (const auto& listener = trial_listener()) listener(trial);
  trials_.push_back(std::move(trial));
}

void CudaBackend::commit_workspace() {
  commit(workspace_, "activations");
  commit(scratch_, "library scratch");
  if (zeros_.wanted > 0) commit(zeros_, "zeros");
  if (plan_cache_) plan_cache_->write();
}

void CudaBackend::copy_to_device(void* device, const void* host, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    Half* half = &staging_.halves[staging_.at];
    if (half->used == kHalf) {
      check(cudaEventRecord(half->done, stream_));
      staging_.at = 1 - staging_.at;
      half = &staging_.halves[staging_.at];
      check(cudaEventSynchronize(half->done));  // its copies were queued before those of the other half
      half->used = 0;
    }
    const std::size_t piece = std::min(bytes - at, kHalf - half->used);
    std::memcpy(half->data + half->used, static_cast<const char*>(host) + at, piece);
    check(cudaMemcpyAsync(static_cast<char*>(device) + at, half->data + half->used, piece, cudaMemcpyHostToDevice,
                          stream_));
    half->used += piece;
    at += piece;
  }
}

void CudaBackend::copy_to_host(void* host, const void* device, std::size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
  check(cudaStreamSynchronize(stream_));
}

void CudaBackend::wait() {
  check(cudaStreamSynchronize(stream_));
  check(cudaStreamSynchronize(copies_));
}

cudaEvent_t CudaBackend::event_of(Ticket ticket) const {
  assert(next_ - ticket <= kTickets);
  return tickets_[static_cast<std::size_t>(ticket % kTickets)];
}

Backend::Ticket CudaBackend::ticket_in(cudaStream_t stream) {
  check(cudaEventRecord(event_of(next_), stream));
  return next_++;
}

Backend::Ticket CudaBackend::fetch(void* pinned, const void* device, std::size_t bytes) {
  check(cudaEventRecord(queued_, stream_));
  check(cudaStreamWaitEvent(copies_, queued_, 0));
  check(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, copies_));
  return ticket_in(copies_);
}

bool CudaBackend::arrived(Ticket ticket) { return happened(event_of(ticket)); }

void CudaBackend::wait_for(Ticket ticket) { check(cudaEventSynchronize(event_of(ticket))); }

void CudaBackend::queue_behind(Ticket ticket) { check(cudaStreamWaitEvent(stream_, event_of(ticket), 0)); }

Backend::Ticket CudaBackend::stamp() {
  check(cudaEventRecord(moment_of(next_stamp_), stream_));
  return next_stamp_++;
}

bool CudaBackend::passed(Ticket stamp) { return happened(moment_of(stamp)); }

double CudaBackend::seconds(Ticket from, Ticket to) {
  float milliseconds{};
  check(cudaEventElapsedTime(&milliseconds, moment_of(from), moment_of(to)));
  return double(milliseconds) / 1000;
}

void CudaBackend::send(void* device, const void* pinned, std::size_t bytes) {
  check(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream_));
}

class CudaBackend::Graph final : public Recording {
 public:
  Graph(CudaBackend& backend, std::function<void()> work) : backend_(backend), work_(std::move(work)) { capture(); }

  void replay() override {
    if (moves_ != backend_.moves_) capture();  // addresses in it are old
    check(cudaGraphLaunch(graph_.get(), backend_.stream()));
    backend_.counters += counted_;
  }

 private:
  void capture() {
    const Counters before = backend_.counters;
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(backend_.stream(), cudaStreamCaptureModeThreadLocal));
    try {
      work_();
      check(cudaStreamEndCapture(backend_.stream(), &graph));
      cudaGraphExec_t made{};
      check(cudaGraphInstantiateWithFlags(&made, graph, 0));
      graph_.reset(made);
    } catch (...) {
      if (graph == nullptr) (void)cudaStreamEndCapture(backend_.stream(), &graph);
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      (void)cudaGetLastError();  // or the next kernel would be blamed for it
      backend_.counters = before;
      throw;
    }
    check(cudaGraphDestroy(graph));
    counted_ = backend_.counters;
    counted_ -= before;
    backend_.counters = before;
    moves_ = backend_.moves_;
  }

  CudaBackend& backend_;
  std::function<void()> work_;
  std::unique_ptr<CUgraphExec_st, Destroy<cudaGraphExecDestroy>> graph_;
  Counters counted_;
  int moves_ = 0;  ///< moves of the backend's memory until it was captured
};

std::unique_ptr<Backend::Recording> CudaBackend::record(std::function<void()> work) {
  return options_.graphs ? capture(std::move(work)) : std::make_unique<Calls>(std::move(work));
}

std::unique_ptr<Backend::Recording> CudaBackend::capture(std::function<void()> work) {
  return std::make_unique<Graph>(*this, std::move(work));
}

}  // namespace cuda
}  // namespace dat
