// cuBLAS: products of matrices, and of a matrix with a vector. See double.hpp.

#include <cublas_v2.h>

#include <algorithm>

#include "double.hpp"
#include "storage.hpp"

using namespace dat_double;

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

namespace {

bool transposed(cublasOperation_t op) { return op != CUBLAS_OP_N; }
bool known(cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T; }
bool known(cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }

std::size_t elements(int rows, int columns, int leading) {
  return static_cast<std::size_t>(leading) * (columns - 1) + rows;
}

cublasStatus_t queue(cublasHandle_t handle, std::function<void()> work) {
  const auto all = [workspace = handle->workspace, bytes = handle->workspace_bytes, work = std::move(work)] {
    scribble(workspace, bytes);
    work();
  };
  return enqueue(handle->stream, all, {}, "cuBLAS") == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_EXECUTION_FAILED;
}

/// A matrix as it is stored.
struct Matrix {
  const void* data;
  cudaDataType type;
  int rows, columns, leading;
};

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                    float alpha, const Matrix& a, const Matrix& b, float beta, void* c, cudaDataType type, int ldc,
                    bool as_tf32) {
  if (m < 1 || n < 1 || k < 1 || a.leading < a.rows || b.leading < b.rows || ldc < m || !known(op_a) || !known(op_b))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!known(a.type) || a.type != b.type || !known(type) || (type != CUDA_R_32F && type != a.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  require_device("gemm", "A", a.data, elements(a.rows, a.columns, a.leading) * size_of(a.type));
  require_device("gemm", "B", b.data, elements(b.rows, b.columns, b.leading) * size_of(b.type));
  require_device("gemm", "C", c, elements(m, n, ldc) * size_of(type));
  return queue(handle, [=] {
    const auto x = read(a.data, a.type, elements(a.rows, a.columns, a.leading), as_tf32),
               y = read(b.data, b.type, elements(b.rows, b.columns, b.leading), as_tf32);
    const std::ptrdiff_t a_row = transposed(op_a) ? a.leading : 1, a_inner = transposed(op_a) ? 1 : a.leading;
    const std::ptrdiff_t b_column = transposed(op_b) ? 1 : b.leading, b_inner = transposed(op_b) ? b.leading : 1;
#pragma omp parallel for collapse(2) schedule(static)
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int l = 0; l < k; ++l) sum += double{x[i * a_row + l * a_inner]} * y[j * b_column + l * b_inner];
        blend(c, type, static_cast<std::size_t>(ldc) * j + i, alpha * sum, beta);
      }
    }
  });
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
/// Forgets the workspace, as the library does.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (bytes > 0 && reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  require_device("cublasSetWorkspace", "the workspace", workspace, bytes);
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return status_name(status,
                     {DAT_NAMED(CUBLAS_STATUS_SUCCESS), DAT_NAMED(CUBLAS_STATUS_NOT_INITIALIZED),
                      DAT_NAMED(CUBLAS_STATUS_INVALID_VALUE), DAT_NAMED(CUBLAS_STATUS_NOT_SUPPORTED),
                      DAT_NAMED(CUBLAS_STATUS_EXECUTION_FAILED)},
                     "an unknown cuBLAS status");
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (!tf32 && compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return gemm(handle, op_a, op_b, m, n, k, *static_cast<const float*>(alpha),
              {a, type_a, transposed(op_a) ? k : m, transposed(op_a) ? m : k, lda},
              {b, type_b, transposed(op_b) ? n : k, transposed(op_b) ? k : n, ldb}, *static_cast<const float*>(beta), c,
              type_c, ldc, tf32);
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
  return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F,
                      ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t op, int m, int n, const float* alpha,
                              const float* a, int lda, const float* x, int incx, const float* beta, float* y,
                              int incy) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (alpha == nullptr || beta == nullptr || m < 1 || n < 1 || lda < m) return CUBLAS_STATUS_INVALID_VALUE;
  if (op != CUBLAS_OP_N || incx != 1 || incy != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  require_device("cublasSgemv", "A", a, elements(m, n, lda) * sizeof(float));
  require_device("cublasSgemv", "x", x, n * sizeof(float));
  require_device("cublasSgemv", "y", y, m * sizeof(float));
  return queue(handle, [=, factor = *alpha, keep = *beta] {
    for (int i = 0; i < m; ++i) {
      double sum = 0;
      for (int l = 0; l < n; ++l) sum += double{a[i + std::ptrdiff_t{l} * lda]} * x[l];
      blend(y, CUDA_R_32F, i, factor * sum, keep);
    }
  });
}
}
