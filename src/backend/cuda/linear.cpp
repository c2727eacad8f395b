#include <vector>

#include "backend/cuda/backend.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

/// cuBLAS counts columns first: it sees the transpose of each row-major matrix.
class CudaLinear final : public Linear {
 public:
  CudaLinear(CudaBackend& backend, int n, int in, int out) : backend_(backend), n_(n), in_(in), out_(out) {
    ones_ = backend.allocate_floats(n, "ones");
    const std::vector<float> ones(static_cast<std::size_t>(n), 1.0F);
    backend.copy_to_device(ones_, ones.data(), ones.size() * sizeof(float));
  }

  void forward(const float* x, const float* weights, const float* bias, float* y) override {
    check(cublasSgemm(backend_.cublas(), CUBLAS_OP_T, CUBLAS_OP_N, out_, n_, in_, &kOne, weights, in_, x, in_, &kZero,
                      y, out_));
    constexpr int kSide = 1;  // of a sample with as many channels as it has numbers
    const std::int64_t count = std::int64_t{n_} * out_;
    each(backend_.device(), kernels::groups(count),
         kernels::AffineRelu<float>{y, nullptr, bias, y, nullptr, {out_, kSide, kSide, out_}, count, false});
  }

  void backward_data(const float* dy, const float* weights, float* dx) override {
    check(cublasSgemm(backend_.cublas(), CUBLAS_OP_N, CUBLAS_OP_N, in_, n_, out_, &kOne, weights, in_, dy, out_, &kZero,
                      dx, in_));
  }

  void backward_weights(const float* x, const float* dy, float* dw, float* dbias, bool accumulate) override {
    ++backend_.counters.linear_backward_weights;
    const float* beta = accumulate ? &kOne : &kZero;
    if (dw != nullptr)
      check(cublasSgemm(backend_.cublas(), CUBLAS_OP_N, CUBLAS_OP_T, in_, out_, n_, &kOne, x, in_, dy, out_, beta, dw,
                        in_));
    if (dbias != nullptr)
      check(cublasSgemv(backend_.cublas(), CUBLAS_OP_N, out_, n_, &kOne, dy, out_, ones_, 1, beta, dbias, 1));
  }

 private:
  CudaBackend& backend_;
  int n_, in_, out_;
  float* ones_;  ///< [n]: what adds up the columns of dy
};

}  // namespace

std::unique_ptr<Linear> CudaBackend::linear(int n, int in, int out) {
  return std::make_unique<CudaLinear>(*this, n, in, out);
}

}  // namespace dat::cuda
