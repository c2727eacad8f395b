#pragma once

// The ways to compute a batch norm of a training: a family behind one interface, and who offers its members.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cudnn.hpp"
#include "batch_norm.hpp"
#include "dat/backend.hpp"

namespace dat::cuda {

class CudaBackend;

/// Device memory of one batch norm. Arrays that a call does not read or write are null.
struct NormOperands {
  const void *x = nullptr, *residual = nullptr, *dy = nullptr;
  BatchNorm::Sum sum{};  ///< summands of x, with spec.of_sum, in the forward pass
  void* y = nullptr;
  kernels::NormChannels channels{};   ///< scale, slope and constant are the batch norm's own; nobody else's
  std::uint16_t* bits = nullptr;      ///< places where the ReLU was open, with spec.relu: the batch norm's own
  void* reserve = nullptr;            ///< reserve_bytes(): what the backward pass needs of the forward pass
  std::uint32_t* counters = nullptr;  ///< counters of kernels' ChannelRoom
  void* scratch = nullptr;            ///< scratch_bytes(), aligned to 256 bytes
  BatchNorm::Gradients gradients{};   ///< gradients of the backward pass
};

/// One way to compute a batch norm, forward and backward. A plan belongs to no batch norm: equal ones share it. It must
/// give the same results at every call if deterministic(), and all that it queues must be recordable (Backend::record).
class NormPlan {
 public:
  NormPlan() = default;
  NormPlan(const NormPlan&) = delete;
  NormPlan& operator=(const NormPlan&) = delete;
  virtual ~NormPlan() = default;

  /// Name for reports, which is also a key.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  [[nodiscard]] virtual std::size_t reserve_bytes() const { return 0; }
  /// Queue the forward pass, and the backward pass. Not successful: the library refuses.
  [[nodiscard]] virtual cudnnStatus_t forward(const NormOperands&) const = 0;
  [[nodiscard]] virtual cudnnStatus_t backward(const NormOperands&) const = 0;
  /// Queues the forward pass once more, with the channels' scale as the first time. Not successful: it cannot.
  [[nodiscard]] virtual cudnnStatus_t again(const NormOperands&) const { return CUDNN_STATUS_NOT_SUPPORTED; }
  /// Returns whether the backward pass reads y.
  [[nodiscard]] virtual bool reads_result() const { return false; }
};

/// Plan of our own kernels, for every storage: its results never vary.
[[nodiscard]] std::unique_ptr<const NormPlan> own_norm_plan(CudaBackend&, const BatchNormSpec&);
/// cuDNN's, with kernels of ours for what the library does not do; null: there is none for this one.
[[nodiscard]] std::unique_ptr<const NormPlan> cudnn_norm_plan(CudaBackend&, const BatchNormSpec&);

}  // namespace dat::cuda
