#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/onednn.hpp"
#include "backend/shared/shared_block.hpp"
#include "dat/backend.hpp"

namespace dat::cpu {

inline constexpr std::size_t kLine = 64;  ///< bytes of a cache line, at which arrays begin

class CpuBackend : public Backend {
 public:
  /// deterministic: results do not depend on the number of threads. math "bf16" or "bf16x3": products by AMX.
  /// Error(device): this processor has none.
  CpuBackend(int threads, bool deterministic, const std::string& math);

  [[nodiscard]] Device device() const override { return {DeviceKind::cpu, nullptr}; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::string arithmetic() const override;
  [[nodiscard]] std::string device_id() const override { return {}; }
  [[nodiscard]] Layout activation_layout(int c, int h, int w) const override;
  [[nodiscard]] Layout image_layout(int c, int h, int w) const override { return {c, h, w, 1}; }

  [[nodiscard]] std::string refuses(DType storage) const override;
  [[nodiscard]] void* allocate(std::size_t bytes, const std::string& purpose) override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes, const std::string& purpose) override {
    return allocate(bytes, purpose);
  }
  [[nodiscard]] std::size_t spare_memory() const override { return 0; }
  [[nodiscard]] std::vector<Allocation> allocations() const override { return allocations_; }
  void request_workspace(std::size_t bytes) override { workspace_.request(bytes); }
  void commit_workspace() override;
  [[nodiscard]] void* workspace() const override { return workspace_.data; }

  void plan_weights() override { planned_weights_ = 0; }
  [[nodiscard]] bool take_turn(const void* program) override { return std::exchange(turn_, program) == program; }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override { copy_to_device(host, device, bytes); }
  void wait() override {}
  [[nodiscard]] Ticket mark() override { return 0; }
  [[nodiscard]] Ticket fetch(void* pinned, const void* device, std::size_t bytes) override;
  [[nodiscard]] bool arrived(Ticket) override { return true; }
  void wait_for(Ticket) override {}
  void send(void* device, const void* pinned, std::size_t bytes) override { copy_to_device(device, pinned, bytes); }
  [[nodiscard]] Ticket stamp() override;
  [[nodiscard]] bool passed(Ticket) override { return true; }
  [[nodiscard]] double seconds(Ticket from, Ticket to) override;
  [[nodiscard]] std::unique_ptr<Recording> record(std::function<void()> work) override;

  [[nodiscard]] std::unique_ptr<Conv2d> conv2d(const ConvSpec&) override;
  [[nodiscard]] std::unique_ptr<Recording> loads(std::vector<Load> all) override;
  [[nodiscard]] std::unique_ptr<BatchNorm> batch_norm(const BatchNormSpec&) override;
  [[nodiscard]] std::unique_ptr<Linear> linear(int n, int in, int out) override;

  [[nodiscard]] bool leaves_samples_out() const override { return true; }
  [[nodiscard]] bool takes_norm(const ConvSpec& spec) const override;

  /// Channels that lie together in activations: one vector register.
  [[nodiscard]] int block() const { return block_; }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] bool deterministic() const { return deterministic_; }
  /// Number of bf16 parts of each factor of the products that AMX makes; 0: products in f32.
  [[nodiscard]] int bf16_parts() const { return bf16_parts_; }
  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }
  [[nodiscard]] const dnnl::stream& stream() const { return stream_; }
  /// Reserves room for packed weights and returns its offset. Weights of one program lie apart; those of programs that
  /// take turns may lie over each other.
  [[nodiscard]] std::size_t reserve_weights(std::size_t bytes);
  [[nodiscard]] float* weights(std::size_t offset) const {
    return reinterpret_cast<float*>(static_cast<char*>(weights_.data) + offset);
  }
  /// Memory for the inside of one library call, shared by all of them; exists after commit_workspace.
  void request_scratch(std::size_t bytes) { scratch_.request(bytes); }
  [[nodiscard]] void* scratch() const { return scratch_.data; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  using Memory = std::unique_ptr<void, Free>;
  [[nodiscard]] Memory zeroed(std::size_t bytes, const std::string& purpose);
  void commit(SharedBlock& shared, Memory& memory, const std::string& purpose);

  int threads_;
  bool deterministic_;
  int bf16_parts_;
  int block_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Memory> memory_;
  std::vector<Allocation> allocations_;
  SharedBlock workspace_, scratch_, weights_;
  Memory workspace_memory_, scratch_memory_, weights_memory_;
  std::size_t planned_weights_ = 0;
  const void* turn_ = nullptr;  ///< the program whose packed weights are there
  std::vector<std::chrono::steady_clock::time_point> stamps_;
  Ticket next_stamp_ = 0;
};

/// Lets the library compute with one thread, as long as this object lives, where the backend is deterministic: for
/// primitives that share a sum out to the threads, while they are planned and while they run.
class FixedSums {
 public:
  explicit FixedSums(const CpuBackend& backend);
  ~FixedSums();
  FixedSums(const FixedSums&) = delete;
  FixedSums& operator=(const FixedSums&) = delete;

 private:
  const int threads_;  ///< number of threads to go back to
};

}  // namespace dat::cpu
