#include "backend/cuda/cudnn.hpp"

namespace dat::cuda {

namespace {

[[noreturn]] void failed(const char* library, const std::string& what, const Here& here) {
  std::string file = here.file_name();
  file.erase(0, file.find_last_of('/') + 1);
  fail(ExitCode::device, library, ": ", what, " (", file, ":", here.line(), "); 'dat_hpc doctor' looks for the cause");
}

}  // namespace

void check(cudaError_t status, Here here) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  require(status != cudaErrorMemoryAllocation, ExitCode::device,
          "the GPU's memory is full; take a smaller --micro-batch, or fewer ranks per GPU");
  failed("CUDA", cudaGetErrorString(status), here);
}

void check(cudnnStatus_t status, Here here) {
  if (status != CUDNN_STATUS_SUCCESS) failed("cuDNN", cudnnGetErrorString(status), here);
}

void check(cublasStatus_t status, Here here) {
  if (status != CUBLAS_STATUS_SUCCESS) failed("cuBLAS", cublasGetStatusString(status), here);
}

cudnnDataType_t cudnn_type(DType type) {
  return type == DType::f16 ? CUDNN_DATA_HALF : type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

cudaDataType_t cuda_type(DType type) {
  return type == DType::f16 ? CUDA_R_16F : type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

TensorDesc tensor(cudnnTensorFormat_t format, DType type, int n, int c, int h, int w) {
  TensorDesc desc;
  check(cudnnSetTensor4dDescriptor(desc, format, cudnn_type(type), n, c, h, w));
  return desc;
}

FilterDesc filter(cudnnTensorFormat_t format, DType type, int out, int in, int kernel) {
  FilterDesc desc;
  check(cudnnSetFilter4dDescriptor(desc, cudnn_type(type), format, out, in, kernel, kernel));
  return desc;
}

ConvolutionDesc convolution(int pad, int stride) {
  ConvolutionDesc desc;
  check(
      cudnnSetConvolution2dDescriptor(desc, pad, pad, stride, stride, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  return desc;
}

ActivationDesc activation(bool relu) {
  ActivationDesc desc;
  check(cudnnSetActivationDescriptor(desc, relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                                     CUDNN_NOT_PROPAGATE_NAN, 0));
  return desc;
}

std::string cudnn_version() {
  const std::size_t v = cudnnGetVersion(), major = v >= 90000 ? 10000 : 1000;  // 8905 is 8.9.5, 91900 is 9.19.0
  return std::to_string(v / major) + "." + std::to_string(v % major / 100) + "." + std::to_string(v % 100);
}

}  // namespace dat::cuda
