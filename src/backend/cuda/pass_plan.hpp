#pragma once

// The ways to compute one pass of a convolution: a family behind one interface, and who offers its members.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cudnn.hpp"
#include "backend/cuda/planning_time.hpp"
#include "backend/shared/shared_block.hpp"
#include "convolution.hpp"
#include "dat/backend.hpp"

namespace dat::cuda {

class CudaBackend;

using Pass = kernels::ConvolutionPass;

inline constexpr std::size_t kPiece = 16;  ///< bytes that fast kernels take at once

/// One pass of a convolution that is to be planned. Tensors are NHWC and packed, in conv.storage; weights
/// [out][kh][kw][in].
struct PassSpec {
  ConvSpec conv;
  Pass pass = Pass::forward;
  bool through_relu = false;  ///< data: Conv2d::backward_relu instead of backward_data

  /// Returns whether the weights are copies in conv.storage, packed for the passes; else they are the parameters
  /// themselves.
  [[nodiscard]] bool packed() const { return conv.frozen || conv.storage != DType::f32; }
  /// Returns whether the pass may be asked to add: a weight gradient in 16 bits is added by a kernel of ours, in f32.
  [[nodiscard]] bool may_add() const { return pass != Pass::weights || conv.storage == DType::f32; }
  /// Channels of x and of the weights in memory: where weights are packed, images get zero channels up to 16 bytes per
  /// pixel, what tensor cores load at once.
  [[nodiscard]] int channels() const { return conv.image && packed() ? dat::aligned(conv.c_in, piece()) : conv.c_in; }
  /// Channels in 16 bytes.
  [[nodiscard]] int piece() const { return static_cast<int>(kPiece / size_of(conv.storage)); }
  [[nodiscard]] int taps() const { return conv.kernel * conv.kernel; }
  [[nodiscard]] std::int64_t x_count() const { return std::int64_t{conv.n} * conv.h * conv.w * channels(); }
  [[nodiscard]] std::int64_t y_count() const { return std::int64_t{conv.n} * conv.h_out() * conv.w_out() * conv.c_out; }
  [[nodiscard]] std::int64_t w_count() const { return std::int64_t{conv.c_out} * taps() * channels(); }
  /// Elements of what the pass writes.
  [[nodiscard]] std::int64_t result_count() const {
    return pass == Pass::forward ? y_count() : pass == Pass::data ? x_count() : w_count();
  }
  /// The convolution and the pass in words, for reports and as a key: "3x3, 64 to 64 channels, 128 of 32x32, frozen,
  /// ReLU, f16", and "input gradient".
  [[nodiscard]] std::string convolution() const;
  [[nodiscard]] std::string pass_name() const;
};

/// Device memory of one call. Arrays that a pass does not read or write are null.
struct Operands {
  const void* x = nullptr;             ///< forward, weight gradient, through a ReLU: [n][h][w][channels]
  const void* dy = nullptr;            ///< input and weight gradient: [n][h_out][w_out][c_out]
  const void* w = nullptr;             ///< forward, input gradient: as rotated_weights() says
  const float* bias = nullptr;         ///< frozen forward: [c_out]
  const void* rounded_bias = nullptr;  ///< the bias in conv.storage
  /// Summand, as large as the result: with conv.keeps_residual; through a ReLU with conv.other_gradient.
  const void* other = nullptr;
  void* result = nullptr;         ///< y, dx or dw
  std::uint16_t* bits = nullptr;  ///< frozen forward with ReLU: see Conv2d::forward; null: not wanted
  /// The pass adds to `result`, else it overwrites it. Forward: always conv.accumulate, where no residual is kept. The
  /// gradients: either. Through a ReLU: never.
  bool accumulate = false;
  const void* zeros = nullptr;  ///< zeros_bytes() of them
  void* scratch = nullptr;      ///< scratch_bytes(), aligned to 256 bytes; what it holds before and after is nobody's
};

/// Queues the mask bits of a frozen forward pass with ReLU, made of its result, where they are wanted.
void store_mask(CudaBackend&, const PassSpec&, const Operands&);

/// The size of a part of scratch memory after which another part may begin.
[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) { return dat::aligned(bytes, 256); }

/// One way to compute one pass. A plan belongs to no convolution: equal convolutions share it. A plan must give the
/// same results at every call if deterministic(), and all that it queues must be recordable (Backend::record).
class PassPlan {
 public:
  PassPlan() = default;
  PassPlan(const PassPlan&) = delete;
  PassPlan& operator=(const PassPlan&) = delete;
  virtual ~PassPlan() = default;

  /// The plan's name for reports, e.g. "IMPLICIT_PRECOMP_GEMM tensor fused". No two plans of a pass have the same name.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  [[nodiscard]] virtual std::size_t zeros_bytes() const { return 0; }
  [[nodiscard]] virtual bool deterministic() const = 0;
  /// Input gradient: w are the rotated weights [in][kh][kw][out] of kernels::FoldWeights, else [out][kh][kw][in].
  [[nodiscard]] virtual bool rotated_weights() const = 0;

  /// Queues the whole pass on the backend's stream: a frozen forward pass with its bias, addition, ReLU and mask bits,
  /// whether the library does them or a kernel of ours after it. Not successful: the library refuses, and nothing that
  /// it was to write may be relied on. Error(device): a kernel of ours cannot be started.
  [[nodiscard]] virtual cudnnStatus_t run(const Operands&) const = 0;
};

/// Plans that a provider offers for a pass, the preferred one first, and reasons why others are missing.
struct Plans {
  std::vector<std::unique_ptr<const PassPlan>> plans;
  struct Refusal {
    std::string name, why;
  };
  std::vector<Refusal> refused;  ///< listed among the backend's trials
};

/// cuDNN's legacy calls (cudnnConvolutionForward and its like), each algorithm in each form that it can have, in the
/// order of cuDNN's heuristics. There are none for a gradient through a ReLU. Defined in legacy_plans.cpp.
[[nodiscard]] Plans legacy_plans(CudaBackend&, const PassSpec&);

/// cuDNN's graph API, for frozen convolutions in 16 bits: forward where the result lies where no operand does, and the
/// input gradient through a ReLU. Engines are built until the time is over. With --deterministic there are none, since
/// the library's engines would have to be chosen by time. Defined in graph_plans.cpp.
[[nodiscard]] Plans graph_plans(CudaBackend&, const PassSpec&, const PlanningTime::Share& time);
/// The one of these with a name that PassPlan::name() has given, in this process or another one. Null: there is none,
/// or the library does not build it.
[[nodiscard]] std::unique_ptr<const PassPlan> graph_plan(CudaBackend&, const PassSpec&, const std::string& name);
/// A sentence for dat_hpc doctor: whether the graph API has plans for a typical convolution, or why not.
[[nodiscard]] std::string graph_report(CudaBackend&);

}  // namespace dat::cuda
