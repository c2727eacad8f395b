#include <algorithm>

#include "backend/cuda/backend.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

constexpr float kOne = 1, kZero = 0;
constexpr auto kOps = CUDNN_BATCHNORM_OPS_BN;

/// cuDNN's batch norm; the ReLU behind it is ours, because cuDNN fuses it in f16 only.
class CudaBatchNorm final : public BatchNorm {
 public:
  CudaBatchNorm(CudaBackend& backend, const BatchNormSpec& spec)
      : backend_(backend),
        spec_(spec),
        count_(std::int64_t{spec.n} * spec.c * spec.h * spec.w),
        x_(nhwc(DType::f32, spec.n, spec.c, spec.h, spec.w)) {
    // The persistent kernels are the fast ones; where they do not fit, the plain ones do.
    check(cudnnDeriveBNTensorDescriptor(channel_, x_, mode_));
    if (sizes() != CUDNN_STATUS_SUCCESS) {
      mode_ = CUDNN_BATCHNORM_SPATIAL;
      check(cudnnDeriveBNTensorDescriptor(channel_, x_, mode_));
      check(sizes());
    }
    if (reserve_bytes_ > 0) reserve_ = backend.allocate(reserve_bytes_, "batch norm");
    inverse_ = backend.allocate_floats(spec.c, "batch norm");
    if (spec.relu)
      bits_ = static_cast<std::uint16_t*>(
          backend.allocate(static_cast<std::size_t>(kernels::groups(count_)) * sizeof(std::uint16_t), "ReLU masks"));
    gradient_offset_ = (std::max(forward_bytes_, backward_bytes_) + 255) / 256 * 256;
    backend.request_scratch(gradient_offset_ + static_cast<std::size_t>(count_) * sizeof(float));
  }

  void forward(const float* x, const float* gamma, const float* beta, float* y, float* mean, float* variance) override {
    // No running statistics: the library reads them, with a factor of 1 too, and a NaN in them would stay for good. The
    // saved ones are those of this batch.
    check(cudnnBatchNormalizationForwardTrainingEx(backend_.cudnn(), mode_, kOps, &kOne, &kZero, x_, x, nullptr,
                                                   nullptr, x_, y, channel_, gamma, beta, 1.0, nullptr, nullptr,
                                                   static_cast<double>(spec_.epsilon), mean, inverse_, nullptr,
                                                   backend_.scratch(), forward_bytes_, reserve_, reserve_bytes_));
    each(backend_.device(), spec_.c, kernels::BatchVariance{inverse_, variance, spec_.epsilon});
    if (spec_.relu)
      each(backend_.device(), kernels::groups(count_), kernels::Add<float>{y, nullptr, y, count_, true, bits_});
  }

  void backward(const float* x, const float* dy, const float* gamma, const float* mean, const float*, float* dx,
                float* dgamma, float* dbeta) override {
    // cuDNN does not promise to work in place.
    auto* gradient = reinterpret_cast<float*>(static_cast<char*>(backend_.scratch()) + gradient_offset_);
    if (spec_.relu)
      each(backend_.device(), kernels::groups(count_),
           kernels::MaskGradient<float>{dy, nullptr, bits_, gradient, count_});
    else if (dx == dy)
      each(backend_.device(), kernels::groups(count_), kernels::Add<float>{dy, nullptr, gradient, count_});
    else
      gradient = const_cast<float*>(dy);
    check(cudnnBatchNormalizationBackwardEx(backend_.cudnn(), mode_, kOps, &kOne, &kZero, &kOne, &kZero, x_, x, nullptr,
                                            nullptr, x_, gradient, nullptr, nullptr, x_, dx, channel_, gamma, nullptr,
                                            dgamma, dbeta, static_cast<double>(spec_.epsilon), mean, inverse_, nullptr,
                                            backend_.scratch(), backward_bytes_, reserve_, reserve_bytes_));
  }

 private:
  [[nodiscard]] cudnnStatus_t sizes() {
    const cudnnHandle_t cudnn = backend_.cudnn();
    cudnnStatus_t status = cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnn, mode_, kOps, x_, nullptr, x_,
                                                                                    channel_, nullptr, &forward_bytes_);
    if (status == CUDNN_STATUS_SUCCESS)
      status = cudnnGetBatchNormalizationBackwardExWorkspaceSize(cudnn, mode_, kOps, x_, x_, x_, nullptr, x_, channel_,
                                                                 nullptr, &backward_bytes_);
    if (status == CUDNN_STATUS_SUCCESS)
      status = cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnn, mode_, kOps, nullptr, x_, &reserve_bytes_);
    return status;
  }

  CudaBackend& backend_;
  BatchNormSpec spec_;
  std::int64_t count_;
  cudnnBatchNormMode_t mode_ = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
  TensorDesc x_, channel_;
  std::size_t forward_bytes_ = 0, backward_bytes_ = 0, reserve_bytes_ = 0, gradient_offset_ = 0;
  void* reserve_ = nullptr;
  float* inverse_ = nullptr;       ///< of the deviations of the last forward call
  std::uint16_t* bits_ = nullptr;  ///< where the ReLU was open
};

}  // namespace

std::unique_ptr<BatchNorm> CudaBackend::batch_norm(const BatchNormSpec& spec) {
  return std::make_unique<CudaBatchNorm>(*this, spec);
}

}  // namespace dat::cuda
