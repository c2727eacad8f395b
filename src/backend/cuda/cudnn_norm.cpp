// cuDNN's batch norm as a plan.

#include <algorithm>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/norm_plan.hpp"
#include "backend/cuda/pass_plan.hpp"
#include "convolution.hpp"

namespace dat::cuda {

namespace {

/// The addition before it and, in f32, the addition and the ReLU after it are kernels of ours, because cuDNN fuses them
/// in f16 only, where its reserve space keeps where the ReLU was open.
class CudnnNorm final : public NormPlan {
 public:
  CudnnNorm(CudaBackend& backend, const BatchNormSpec& spec)
      : backend_(backend),
        spec_(spec),
        count_(std::int64_t{spec.n} * spec.c * spec.h * spec.w),
        fused_(spec.storage == DType::f16 && spec.relu),
        ops_(!fused_         ? CUDNN_BATCHNORM_OPS_BN
             : spec.residual ? CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION
                             : CUDNN_BATCHNORM_OPS_BN_ACTIVATION),
        x_(tensor(CUDNN_TENSOR_NHWC, spec.storage, spec.n, spec.c, spec.h, spec.w)),
        activation_(activation(true)) {}

  /// Returns whether the library has code. The persistent kernels are the fast ones, and the only ones that fuse; where
  /// they do not fit, the plain ones do.
  [[nodiscard]] bool exists() {
    if (sizes() == CUDNN_STATUS_SUCCESS) return true;
    if (fused_) return false;
    mode_ = CUDNN_BATCHNORM_SPATIAL;
    return sizes() == CUDNN_STATUS_SUCCESS;
  }

  [[nodiscard]] std::string name() const override {
    return std::string("cuDNN") + (mode_ == CUDNN_BATCHNORM_SPATIAL ? "" : " persistent") + (fused_ ? " fused" : "");
  }
  [[nodiscard]] std::size_t scratch_bytes() const override {
    return gradient_offset() + static_cast<std::size_t>(count_) * size_of(spec_.storage);
  }
  [[nodiscard]] std::size_t reserve_bytes() const override { return reserve_bytes_; }
  [[nodiscard]] bool reads_result() const override { return fused_; }

  [[nodiscard]] cudnnStatus_t forward(const NormOperands& o) const override {
    // No running statistics: the library reads them, with a factor of 1 too, and a NaN in them would stay for good. The
    // saved ones are those of this batch.
    const kernels::NormChannels& c = o.channels;
    if (spec_.of_sum) add(o.sum.a, o.sum.b, o.sum.x);
    const cudnnStatus_t status = cudnnBatchNormalizationForwardTrainingEx(
        backend_.cudnn(), mode_, ops_, &kOne, &kZero, x_, o.x, z(), fused_ ? o.residual : nullptr, x_, o.y, channel_,
        c.gamma, c.beta, double(kOne), nullptr, nullptr, double(spec_.epsilon), c.mean, inverse(o), act(), o.scratch,
        forward_bytes_, o.reserve, reserve_bytes_);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    each(backend_.device(), spec_.c, kernels::BatchVariance{inverse(o), c.variance, spec_.epsilon});
    if (!fused_ && (spec_.relu || spec_.residual)) add(o.y, o.residual, o.y, spec_.relu, o.bits);
    return status;
  }

  [[nodiscard]] cudnnStatus_t backward(const NormOperands& o) const override {
    const BatchNorm::Gradients& to = o.gradients;
    const void* dy = to_library(o);
    // A factor in device memory is none that the library takes.
    const bool direct = to.factor == nullptr && to.dgamma != nullptr && to.dbeta != nullptr;
    float *const dgamma = direct ? to.dgamma : o.channels.slope, *const dbeta = direct ? to.dbeta : o.channels.constant;
    const kernels::NormChannels& c = o.channels;
    const cudnnStatus_t status = cudnnBatchNormalizationBackwardEx(
        backend_.cudnn(), mode_, ops_, &kOne, &kZero, &kOne, direct && to.accumulate ? &kOne : &kZero, x_, o.x,
        fused_ ? static_cast<cudnnTensorDescriptor_t>(x_) : nullptr, fused_ ? o.y : nullptr, x_, dy, z(),
        fused_ && spec_.residual ? dresidual(o) : nullptr, x_, to.dx, channel_, c.gamma, fused_ ? c.beta : nullptr,
        dgamma, dbeta, double(spec_.epsilon), c.mean, inverse(o), act(), o.scratch, backward_bytes_, o.reserve,
        reserve_bytes_);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    const auto take = [&](const float* from, float* destination) {
      if (destination != nullptr && !direct)
        each(backend_.device(), spec_.c,
             kernels::TakeWeightGradient<float>{from, destination, spec_.c, spec_.c, to.factor, to.accumulate});
    };
    take(dgamma, to.dgamma);
    take(dbeta, to.dbeta);
    if (to.addend != nullptr) add(to.addend, to.dx, to.dx);
    return status;
  }

 private:
  /// y = a + b, or a where b is null; with a ReLU; bits (may be null) get where that is open.
  void add(const void* a, const void* b, void* y, bool relu = false, std::uint16_t* bits = nullptr) const {
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), kernels::groups(count_),
           kernels::Add<T>{static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), count_, relu, bits});
    });
  }
  [[nodiscard]] cudnnStatus_t sizes() {
    const cudnnHandle_t cudnn = backend_.cudnn();
    cudnnStatus_t status = cudnnDeriveBNTensorDescriptor(channel_, x_, mode_);
    if (status == CUDNN_STATUS_SUCCESS)
      status = cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnn, mode_, ops_, x_, z(), x_, channel_,
                                                                        act(), &forward_bytes_);
    if (status == CUDNN_STATUS_SUCCESS)
      status = cudnnGetBatchNormalizationBackwardExWorkspaceSize(cudnn, mode_, ops_, x_, x_, x_, z(), x_, channel_,
                                                                 act(), &backward_bytes_);
    if (status == CUDNN_STATUS_SUCCESS)
      status = cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnn, mode_, ops_, act(), x_, &reserve_bytes_);
    return status;
  }
  [[nodiscard]] std::size_t gradient_offset() const { return aligned(std::max(forward_bytes_, backward_bytes_)); }
  [[nodiscard]] static float* inverse(const NormOperands& o) { return o.channels.scale; }
  [[nodiscard]] cudnnTensorDescriptor_t z() const {
    return fused_ && spec_.residual ? static_cast<cudnnTensorDescriptor_t>(x_) : nullptr;
  }
  [[nodiscard]] cudnnActivationDescriptor_t act() const {
    return fused_ ? static_cast<cudnnActivationDescriptor_t>(activation_) : nullptr;
  }
  [[nodiscard]] void* scratch_gradient(const NormOperands& o) const {
    return static_cast<char*>(o.scratch) + gradient_offset();
  }
  /// Destination of a fused gradient of the residual, which the library does not make in place.
  [[nodiscard]] void* dresidual(const NormOperands& o) const {
    return o.gradients.dresidual != nullptr ? o.gradients.dresidual : scratch_gradient(o);
  }

  /// The dy that the library gets: through a ReLU of ours, and not where the result goes, since it does not promise to
  /// work in place.
  [[nodiscard]] const void* to_library(const NormOperands& o) const {
    const BatchNorm::Gradients& to = o.gradients;
    return with_storage(spec_.storage, [&](auto type) -> const void* {
      using T = decltype(type);
      const auto* const dy = static_cast<const T*>(o.dy);
      auto* const kept = static_cast<T*>(to.dresidual != nullptr && !fused_ ? to.dresidual : scratch_gradient(o));
      const bool moves = fused_ ? dy == to.dx || dy == to.dresidual : dy == to.dx || (to.dresidual && dy != kept);
      if (spec_.relu && !fused_)
        each(backend_.device(), kernels::groups(count_), kernels::MaskGradient<T>{dy, nullptr, o.bits, kept, count_});
      else if (moves)
        each(backend_.device(), kernels::groups(count_), kernels::Add<T>{dy, nullptr, kept, count_});
      else
        return dy;
      return kept;
    });
  }

  CudaBackend& backend_;
  const BatchNormSpec spec_;
  const std::int64_t count_;
  const bool fused_;
  const cudnnBatchNormOps_t ops_;
  cudnnBatchNormMode_t mode_ = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
  TensorDesc x_, channel_;
  ActivationDesc activation_;
  std::size_t forward_bytes_ = 0, backward_bytes_ = 0, reserve_bytes_ = 0;
};

}  // namespace

std::unique_ptr<const NormPlan> cudnn_norm_plan(CudaBackend& backend, const BatchNormSpec& spec) {
  // cuDNN's batch norm in bf16 has no training that others rely on: PyTorch does not use it.
  if (spec.storage == DType::bf16) return nullptr;
  auto plan = std::make_unique<CudnnNorm>(backend, spec);
  return plan->exists() ? std::move(plan) : nullptr;
}

}  // namespace dat::cuda
