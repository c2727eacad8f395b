#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cudnn.hpp"
#include "backend/cuda/plan_cache.hpp"
#include "backend/cuda/planning_time.hpp"
#include "backend/shared/shared_block.hpp"
#include "dat/backend.hpp"

namespace dat::cuda {

/// Factors of what a library's call computes and of what it adds that to; libraries want their addresses.
inline constexpr float kOne = 1, kZero = 0;

class NormPlan;
class PassPlan;

/// The GPU that this process has taken (cudaSetDevice). The GPU is looked at before any library is asked for a handle,
/// so that a GPU for which the libraries have no code is refused with words that help. Error(device): the GPU is such a
/// one.
struct Gpu {
  Gpu();
  int index = 0, count = 0;  ///< number of the GPU, and of all GPUs
  std::string name, id;      ///< id: see Backend::device_id
  int capability = 0;        ///< 60 for 6.0
  std::size_t memory = 0;
  bool tensor_cores = false;
  int numa_node = -1;  ///< -1: not known
};

/// The NUMA node of a GPU that this process sees; see numa_nodes_of_gpus().
[[nodiscard]] int numa_node_of(int gpu, const std::string& root = "");

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options);
  ~CudaBackend() override;

  [[nodiscard]] Device device() const override { return {DeviceKind::cuda, static_cast<cudaStream_t>(stream_), when_}; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::string arithmetic() const override;
  [[nodiscard]] std::string device_id() const override { return gpu_.id; }
  [[nodiscard]] int gpu_number() const override { return gpu_.index; }
  [[nodiscard]] int numa_node() const override { return gpu_.numa_node; }
  [[nodiscard]] Layout activation_layout(int c, int h, int w) const override { return {c, h, w, c}; }
  [[nodiscard]] Layout image_layout(int c, int h, int w) const override { return {c, h, w, c}; }

  [[nodiscard]] std::string refuses(DType storage) const override;
  [[nodiscard]] void* allocate(std::size_t bytes, const std::string& purpose) override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes, const std::string& purpose) override;
  [[nodiscard]] std::shared_ptr<void> pin(void* data, std::size_t bytes) override;
  [[nodiscard]] std::vector<Allocation> allocations() const override { return allocations_; }
  [[nodiscard]] std::size_t spare_memory() const override;
  void request_workspace(std::size_t bytes) override { workspace_.request(bytes); }
  void commit_workspace() override;
  [[nodiscard]] void* workspace() const override { return workspace_.data; }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void wait() override;
  [[nodiscard]] Ticket mark() override { return ticket_in(stream_); }
  [[nodiscard]] Ticket fetch(void* pinned, const void* device, std::size_t bytes) override;
  [[nodiscard]] bool arrived(Ticket ticket) override;
  void wait_for(Ticket ticket) override;
  void send(void* device, const void* pinned, std::size_t bytes) override;
  [[nodiscard]] void* side_queue() override { return static_cast<cudaStream_t>(copies_); }
  [[nodiscard]] Ticket mark_side() override { return ticket_in(copies_); }
  void queue_behind(Ticket ticket) override;
  void only_where(const double* flag) override { when_ = flag; }
  [[nodiscard]] Ticket stamp() override;
  [[nodiscard]] bool passed(Ticket stamp) override;
  [[nodiscard]] double seconds(Ticket from, Ticket to) override;
  [[nodiscard]] std::unique_ptr<Recording> record(std::function<void()> work) override;
  [[nodiscard]] bool replays() const override { return options_.graphs; }
  /// A CUDA graph, also where recordings are to be calls.
  [[nodiscard]] std::unique_ptr<Recording> capture(std::function<void()> work);

  [[nodiscard]] std::unique_ptr<Conv2d> conv2d(const ConvSpec&) override;
  [[nodiscard]] std::unique_ptr<Recording> loads(std::vector<Load> all) override;
  [[nodiscard]] std::unique_ptr<BatchNorm> batch_norm(const BatchNormSpec&) override;
  [[nodiscard]] std::unique_ptr<Linear> linear(int n, int in, int out) override;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] cudnnHandle_t cudnn() const { return cudnn_; }
  [[nodiscard]] cublasHandle_t cublas() const { return cublas_; }
  [[nodiscard]] const Gpu& gpu() const { return gpu_; }
  [[nodiscard]] bool tf32() const { return options_.math == "tf32" && gpu_.capability >= 80; }
  [[nodiscard]] bool deterministic() const { return options_.deterministic; }
  /// Memory for the inside of one call, shared by all of them; exists after commit_workspace.
  void request_scratch(std::size_t bytes) { scratch_.request(bytes); }
  [[nodiscard]] void* scratch() const { return scratch_.data; }
  [[nodiscard]] std::size_t scratch_limit() const { return gpu_.memory / 32; }
  /// Handles for threads that build plans of the graph API, each for one of them at a time, on this backend's stream:
  /// so many, or as many as this rank has threads.
  [[nodiscard]] std::vector<cudnnHandle_t> builders(std::size_t most);
  /// Zeros for those who only read them; exist after commit_workspace.
  void request_zeros(std::size_t bytes) { zeros_.request(bytes); }
  [[nodiscard]] const void* zeros() const { return zeros_.data; }

  /// The plan that was chosen for the pass, or the batch norm, with this description; null: no plan has been chosen
  /// yet.
  [[nodiscard]] std::shared_ptr<const PassPlan>& plan(const std::string& of) { return plans_.passes[of]; }
  [[nodiscard]] std::shared_ptr<const NormPlan>& norm_plan(const std::string& of) { return plans_.norms[of]; }
  void tried(Trial trial);
  [[nodiscard]] std::vector<Trial> trials() const override { return trials_; }
  [[nodiscard]] PlanningTime& planning_time() { return planning_time_; }
  /// Choices of other processes: null where trials are wanted, or nothing is chosen by time.
  [[nodiscard]] PlanCache* plan_cache() { return plan_cache_.get(); }
  [[nodiscard]] std::string remark() const override { return plan_cache_ ? plan_cache_->remark() : ""; }

 private:
  class Graph;
  void commit(SharedBlock& shared, const std::string& purpose);
  [[nodiscard]] cudaEvent_t event_of(Ticket ticket) const;
  /// A new ticket, of what the stream has now.
  [[nodiscard]] Ticket ticket_in(cudaStream_t stream);
  [[nodiscard]] cudaEvent_t moment_of(Ticket stamp) const { return stamps_[static_cast<std::size_t>(stamp % kStamps)]; }

  const Gpu gpu_;
  const BackendOptions options_;
  // Memory outlives the streams: members are destroyed from the last to the first.
  std::vector<std::unique_ptr<void, Destroy<cudaFree>>> memory_;
  std::vector<std::unique_ptr<void, Destroy<cudaFreeHost>>> pinned_;
  std::vector<Allocation> allocations_;
  SharedBlock workspace_, scratch_, zeros_;
  int moves_ = 0;  ///< number of times that one of the blocks has moved
  std::vector<Trial> trials_;
  PlanningTime planning_time_;
  std::unique_ptr<PlanCache> plan_cache_;

  Stream stream_, copies_;
  Cudnn cudnn_;
  std::vector<Cudnn> builders_;
  Cublas cublas_;
  struct Chosen {
    std::map<std::string, std::shared_ptr<const PassPlan>> passes;
    std::map<std::string, std::shared_ptr<const NormPlan>> norms;
  };
  Chosen plans_;

  /// Halves of the pinned memory through which copy_to_device goes, in turn.
  struct Half {
    char* data = nullptr;
    std::size_t used = 0;
    Event done;
  };
  struct Staging {
    Half halves[2];
    int at = 0;
  };
  Staging staging_;

  std::vector<Event> tickets_;
  std::vector<Timer> stamps_;
  Ticket next_ = 0, next_stamp_ = 0;
  Event queued_;
  const double* when_ = nullptr;  ///< Device::when
};

}  // namespace dat::cuda
