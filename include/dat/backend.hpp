#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dat/tensor.hpp"

namespace dat {

/// One convolution of a program: square kernel, square images, padding on all sides, no groups.
/// Dense cost: n * c_out * (h/stride) * (w/stride) * c_in * kernel^2 multiply-adds per pass.
struct ConvSpec {
  int n = 0, c_in = 0, h = 0, w = 0, c_out = 0;
  int kernel = 3, stride = 1, pad = 1;
  /// frozen: weights constant over many calls, bias, and the epilogue below; no weight gradient.
  /// Otherwise: plain convolution with weight gradient, no bias.
  bool frozen = false;
  bool accumulate = false;  ///< frozen: y = conv(x) + bias + y  (a residual waits in y)
  bool relu = false;        ///< frozen: ReLU last
  bool image = false;       ///< x is in image_layout, otherwise in activation_layout
  bool input_gradient = true;

  [[nodiscard]] int h_out() const { return (h + 2 * pad - kernel) / stride + 1; }
  [[nodiscard]] int w_out() const { return (w + 2 * pad - kernel) / stride + 1; }
  [[nodiscard]] double macs() const { return double(n) * c_out * h_out() * w_out() * c_in * kernel * kernel; }
};

/// A planned convolution. x, dx [n, c_in, h, w] and y, dy [n, c_out, h_out, w_out] in the backend's layouts.
class Conv2d {
 public:
  virtual ~Conv2d() = default;

  /// Packs the weights [out][kh][kw][in] into the library's formats. frozen: multiplied by scale [out] and given `bias`
  /// [out] (batch norm folded); otherwise both are null.
  virtual void load(const float* weights, const float* scale, const float* bias) = 0;
  virtual void forward(const float* x, float* y) = 0;
  /// dx = conv^T(dy), or dx += where backward_data_accumulates() and `accumulate`.
  virtual void backward_data(const float* dy, float* dx, bool accumulate) = 0;
  [[nodiscard]] virtual bool backward_data_accumulates() const = 0;
  /// dw [out][kh][kw][in] = or += the weight gradient.
  virtual void backward_weights(const float* x, const float* dy, float* dw, bool accumulate) = 0;
  /// The library's name of the chosen kernels, for reports.
  [[nodiscard]] virtual std::string implementation() const = 0;
};

struct BatchNormSpec {
  int n = 0, c = 0, h = 0, w = 0;
  bool relu = false;  ///< followed by a ReLU
  float epsilon = 1e-5F;
};

/// Batch norm with batch statistics (training), with the ReLU that follows it fused.
class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  /// y = relu?(gamma*(x-mean)/sqrt(var+eps) + beta). mean, variance [c]: of this batch, the variance biased.
  virtual void forward(const float* x, const float* gamma, const float* beta, float* y, float* mean,
                       float* variance) = 0;
  /// dx, and dgamma, dbeta [c] (overwritten), from dy and the x, mean, variance of the last forward call. dx may be dy.
  virtual void backward(const float* x, const float* dy, const float* gamma, const float* mean, const float* variance,
                        float* dx, float* dgamma, float* dbeta) = 0;
};

/// y [n, out] = x [n, in] * weights^T [out, in] + bias [out]. Everything row-major.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual void forward(const float* x, const float* weights, const float* bias, float* y) = 0;
  virtual void backward_data(const float* dy, const float* weights, float* dx) = 0;
  /// dw [out, in] and dbias [out], = or +=. Either may be null: not wanted, not computed.
  virtual void backward_weights(const float* x, const float* dy, float* dw, float* dbias, bool accumulate) = 0;
};

/// How often each kind of library primitive ran: lets a test prove what was not computed.
struct Counters {
  std::int64_t conv_forward = 0, conv_backward_data = 0, conv_backward_weights = 0, linear_backward_weights = 0;
};

/// One device and the libraries on it. Everything is created before the first step; nothing is allocated afterwards.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;  ///< e.g. "cpu: oneDNN 2.6.3, AVX-512, 2 threads"

  /// Layout of activations with c channels of h x w pixels (c = the image's channels: of images).
  [[nodiscard]] virtual Layout activation_layout(int c, int h, int w) const = 0;
  [[nodiscard]] virtual Layout image_layout(int c, int h, int w) const = 0;

  /// Zeroed memory on the device, 64-byte aligned, owned by the backend until it dies.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, const std::string& purpose) = 0;
  [[nodiscard]] float* allocate_floats(std::int64_t count, const std::string& purpose) {
    return static_cast<float*>(allocate(static_cast<std::size_t>(count) * sizeof(float), purpose));
  }
  struct Allocation {
    std::string purpose;
    std::size_t bytes;
  };
  [[nodiscard]] virtual std::vector<Allocation> allocations() const = 0;

  /// Memory that every program may use while it runs, and that none may rely on afterwards: one block, as large as the
  /// largest request. Programs ask while they are built; the block exists after `commit_workspace`.
  virtual void request_workspace(std::size_t bytes) = 0;
  virtual void commit_workspace() = 0;
  [[nodiscard]] virtual void* workspace() const = 0;

  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void wait() = 0;  ///< until everything queued on the device is done

  [[nodiscard]] virtual std::unique_ptr<Conv2d> conv2d(const ConvSpec&) = 0;
  [[nodiscard]] virtual std::unique_ptr<BatchNorm> batch_norm(const BatchNormSpec&) = 0;
  [[nodiscard]] virtual std::unique_ptr<Linear> linear(int n, int in, int out) = 0;

  Counters counters;
};

struct BackendOptions {
  std::string device = "auto";  ///< auto | cpu | cuda
  int threads = 1;              ///< CPU threads of this rank
  int node_rank = 0;            ///< picks the GPU
};

/// Error(device) where the device cannot be had.
[[nodiscard]] std::unique_ptr<Backend> make_backend(const BackendOptions&);

[[nodiscard]] std::string onednn_version();

}  // namespace dat
