#pragma once

// The only door to CUDA's libraries: status checks and owners of their objects.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <memory>
#include <source_location>
#include <string>
#include <type_traits>

#include "dat/error.hpp"
#include "dat/tensor.hpp"

namespace dat::cuda {

using Here = std::source_location;

/// Error(device) with the library's own words where the status is not success.
void check(cudaError_t status, Here here = Here::current());
void check(cudnnStatus_t status, Here here = Here::current());
void check(cublasStatus_t status, Here here = Here::current());

/// For owners of what destroy(object) unmakes.
template <auto destroy>
struct Destroy {
  void operator()(auto* object) const { (void)destroy(object); }
};

/// Owns one object of a library that is made by create(&object) and unmade by destroy(object).
template <class T, auto create, auto destroy>
class Owned {
 public:
  Owned() {
    T made{};
    check(create(&made));
    object_.reset(made);
  }
  operator T() const { return object_.get(); }  // NOLINT: stands for the object in the library's calls

 private:
  std::unique_ptr<std::remove_pointer_t<T>, Destroy<destroy>> object_;
};

[[nodiscard]] inline cudaError_t create_stream(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}
[[nodiscard]] inline cudaError_t create_event(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}
[[nodiscard]] inline cudaError_t create_timer(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

using Stream = Owned<cudaStream_t, create_stream, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, create_event, cudaEventDestroy>;
using Timer = Owned<cudaEvent_t, create_timer, cudaEventDestroy>;
using Cudnn = Owned<cudnnHandle_t, cudnnCreate, cudnnDestroy>;
using Cublas = Owned<cublasHandle_t, cublasCreate, cublasDestroy>;
using TensorDesc = Owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDesc = Owned<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvolutionDesc =
    Owned<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;
using ActivationDesc =
    Owned<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor>;

[[nodiscard]] cudnnDataType_t cudnn_type(DType type);
[[nodiscard]] cudaDataType_t cuda_type(DType type);

/// The descriptor of a tensor. format: CUDNN_TENSOR_NHWC, or CUDNN_TENSOR_NCHW; for filters these mean
/// [out][kh][kw][in], or [out][in][kh][kw].
[[nodiscard]] TensorDesc tensor(cudnnTensorFormat_t format, DType type, int n, int c, int h, int w);
[[nodiscard]] FilterDesc filter(cudnnTensorFormat_t format, DType type, int out, int in, int kernel);
[[nodiscard]] ConvolutionDesc convolution(int pad, int stride);
[[nodiscard]] ActivationDesc activation(bool relu);

/// The version of the library that is loaded, such as "9.19.0".
[[nodiscard]] std::string cudnn_version();

}  // namespace dat::cuda
