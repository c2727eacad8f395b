#pragma once

#include <array>
#include <functional>
#include <vector>

#include "backend/cuda/backend.hpp"
#include "convolution.hpp"

namespace dat::cuda {

/// Memory for trials, given back at their end.
class TrialMemory {
 public:
  explicit TrialMemory(CudaBackend& backend) : backend_(backend) {}
  ~TrialMemory() {
    (void)cudaStreamSynchronize(backend_.stream());
    for (void* p : all_) (void)cudaFree(p);
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  /// Zeroed.
  [[nodiscard]] void* get(std::size_t bytes) {
    void* p = get_if_there(bytes);
    if (p == nullptr) check(cudaErrorMemoryAllocation);
    check(cudaMemsetAsync(p, 0, std::max<std::size_t>(bytes, 1), backend_.stream()));
    return p;
  }
  template <class T>
  [[nodiscard]] T* array(std::int64_t count) {
    return static_cast<T*>(get(static_cast<std::size_t>(count) * sizeof(T)));
  }
  /// Random numbers in [-1, 1), different in each array.
  template <class T>
  [[nodiscard]] T* random(std::int64_t count) {
    T* a = array<T>(count);
    each(backend_.device(), (count + 3) / 4, kernels::RandomFill<T>{a, count, key_++});
    return a;
  }
  /// NaN: what is not written is wrong.
  template <class T>
  void spoil(T* a, std::int64_t count) {
    constexpr int kByteOfNaN = 0xFF;
    check(cudaMemsetAsync(a, kByteOfNaN, static_cast<std::size_t>(count) * sizeof(T), backend_.stream()));
  }
  /// Null where there is not so much memory.
  [[nodiscard]] void* get_if_there(std::size_t bytes) {
    constexpr std::size_t kLeast = 1;  // no bytes would have no address
    void* p = nullptr;
    const cudaError_t status = cudaMalloc(&p, std::max(bytes, kLeast));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(status);
    all_.push_back(p);
    return p;
  }
  /// Null: nothing.
  void give_back(void* p) {
    if (std::erase(all_, p) == 0) return;
    check(cudaStreamSynchronize(backend_.stream()));
    check(cudaFree(p));
  }

 private:
  CudaBackend& backend_;
  std::vector<void*> all_;
  std::uint32_t key_ = 1;
};

/// Clock with which plans are timed. A call of a library takes the host longer than a small kernel takes the GPU:
/// events around a call on an idle stream would measure the host. In the runs to come the attack is a recorded graph,
/// so a graph of calls is what is timed, launched several times in a row: while one runs, the host has launched the
/// next. And a GPU that was idle raises its clock over some hundred milliseconds of work, in favour of what is tried
/// last.
class TrialClock {
 public:
  explicit TrialClock(CudaBackend& backend) : backend_(backend) {}

  /// Milliseconds of one call, the least of some graphs of calls. `once` is a recorded call. A call that takes twice as
  /// long as `best`, the fastest one so far, is replayed once.
  [[nodiscard]] double time(Backend::Recording& once, const std::function<void()>& call, double best);

 private:
  static constexpr int kReplays = 5;

  /// The least of some replays.
  [[nodiscard]] double least(Backend::Recording& recording, int replays);
  /// Warms the GPU up, at the beginning of a process, and where it has idled.
  void warm_up(Backend::Recording& recording);

  CudaBackend& backend_;
  std::array<Timer, kReplays + 1> marks_;
};

}  // namespace dat::cuda
