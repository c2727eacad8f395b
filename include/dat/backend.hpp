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
  bool image = false;       ///< x are images: float, in image_layout; otherwise in activation_layout
  bool input_gradient = true;
  DType storage = DType::f32;  ///< frozen: of activations and their gradients; sums are f32 in any case

  [[nodiscard]] int h_out() const { return (h + 2 * pad - kernel) / stride + 1; }
  [[nodiscard]] int w_out() const { return (w + 2 * pad - kernel) / stride + 1; }
  [[nodiscard]] double macs() const { return double(n) * c_out * h_out() * w_out() * c_in * kernel * kernel; }
};

/// A planned convolution. x, dx [n, c_in, h, w] and y, dy [n, c_out, h_out, w_out] in the backend's layouts and in
/// spec.storage, images in float.
class Conv2d {
 public:
  virtual ~Conv2d() = default;

  /// Takes the weights [out][kh][kw][in], in the library's formats. frozen: multiplied by scale [out] and given `bias`
  /// [out] (batch norm folded); otherwise both are null, and `weights` stay where they are until the next call.
  virtual void load(const float* weights, const float* scale, const float* bias) = 0;
  /// frozen with ReLU: bits [ceil(n*c_out*h_out*w_out/16)] = where the ReLU is open; null: not wanted.
  virtual void forward(const void* x, void* y, std::uint16_t* bits) = 0;
  /// dx = conv^T(dy), or dx += where backward_data_accumulates() and `accumulate`. Not for images.
  void backward_data(const void* dy, void* dx, bool accumulate) { backward_data(dy, dx, accumulate, {}); }
  [[nodiscard]] virtual bool backward_data_accumulates() const = 0;
  /// Bits as from forward(): what is not open counts as zero, in dy, and in the dx that is added to. Null: all counts.
  struct Masks {
    const std::uint16_t *dy = nullptr, *dx = nullptr;
  };
  /// The same with masks, for which backward_data_masks() must be true.
  virtual void backward_data(const void* dy, void* dx, bool accumulate, const Masks& masks) = 0;
  [[nodiscard]] virtual bool backward_data_masks() const = 0;
  /// The gradient of images: dx = conv^T(dy), then PGD's step where `update` has one, with which dx may be left as it
  /// was.
  virtual void backward_image(const void* dy, float* dx, const PgdUpdate& update) = 0;
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

  Counters& operator+=(const Counters& other) { return add(other, 1); }
  Counters& operator-=(const Counters& other) { return add(other, -1); }

 private:
  Counters& add(const Counters& other, int sign) {
    conv_forward += sign * other.conv_forward;
    conv_backward_data += sign * other.conv_backward_data;
    conv_backward_weights += sign * other.conv_backward_weights;
    linear_backward_weights += sign * other.linear_backward_weights;
    return *this;
  }
};

/// One way to compute one pass of a convolution, as tried while programs were planned.
struct Trial {
  std::string convolution;  ///< e.g. "3x3, 64 to 64 channels, 128 of 32x32, frozen, ReLU, f16"
  std::string pass;         ///< forward | input gradient | weight gradient
  std::string name;         ///< the library's name of the algorithm
  double milliseconds = 0;  ///< the least of some runs; 0: not timed
  std::string refused;      ///< why it is out of the question; empty: it is not
};

/// One device and the libraries on it. Everything is created before the first step; nothing is allocated afterwards.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;  ///< e.g. "cpu: oneDNN 2.6.3, AVX-512, 2 threads"
  /// Of a GPU, the same for two ranks exactly if they share it; empty: a CPU.
  [[nodiscard]] virtual std::string device_id() const = 0;

  /// Layout of activations with c channels of h x w pixels (c = the image's channels: of images).
  [[nodiscard]] virtual Layout activation_layout(int c, int h, int w) const = 0;
  [[nodiscard]] virtual Layout image_layout(int c, int h, int w) const = 0;

  /// Whether programs may keep activations in this type, and why not: empty if they may.
  [[nodiscard]] virtual std::string refuses(DType storage) const = 0;

  /// Zeroed memory on the device, 64-byte aligned, owned by the backend until it dies.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, const std::string& purpose) = 0;
  [[nodiscard]] float* allocate_floats(std::int64_t count, const std::string& purpose) {
    return static_cast<float*>(allocate(static_cast<std::size_t>(count) * sizeof(float), purpose));
  }
  /// Zeroed host memory from which and to which the device copies by itself.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes, const std::string& purpose) = 0;
  struct Allocation {
    std::string purpose;
    std::size_t bytes;
  };
  [[nodiscard]] virtual std::vector<Allocation> allocations() const = 0;  ///< on the device
  /// Bytes that could still be allocated on the device for data that speeds things up; 0 on the CPU.
  [[nodiscard]] virtual std::size_t spare_memory() const = 0;

  /// Memory that every program may use while it runs, and that none may rely on afterwards: one block, as large as the
  /// largest request. Programs ask while they are built; the block exists after `commit_workspace`. A later, larger
  /// block makes recordings void.
  virtual void request_workspace(std::size_t bytes) = 0;
  virtual void commit_workspace() = 0;
  [[nodiscard]] virtual void* workspace() const = 0;

  /// Packed weights may lie in memory that programs use in turn. Convolutions made after `plan_weights` belong to one
  /// program, or to some that lie side by side and take one turn together (`who`). They take it before they pack or use
  /// the weights: false where all of them have to be packed again. Like the workspace, that memory exists after
  /// commit_workspace.
  virtual void plan_weights() {}
  [[nodiscard]] virtual bool take_turn(const void* /*who*/) { return true; }

  /// All work is queued and done in order; what these two copy is queued with it.
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;  ///< host may change at once
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;    ///< waits: host is there
  virtual void wait() = 0;  ///< until everything queued on the device is done

  /// Copies between the device and pinned memory that go on beside later work. A fetch takes what the work queued so
  /// far leaves on the device; its host memory is there once its ticket has arrived. What is sent must not change
  /// before wait() or before a later fetch has arrived.
  using Ticket = std::int64_t;
  [[nodiscard]] virtual Ticket mark() = 0;  ///< arrives when all that is queued now is done
  [[nodiscard]] virtual Ticket fetch(void* pinned, const void* device, std::size_t bytes) = 0;
  [[nodiscard]] virtual bool arrived(Ticket) = 0;
  virtual void wait_for(Ticket) = 0;
  virtual void send(void* device, const void* pinned, std::size_t bytes) = 0;

  /// A moment in the order of the device's work, among the last kStamps. Seconds between two of them, once both have
  /// passed.
  static constexpr int kStamps = 1024;
  [[nodiscard]] virtual Ticket stamp() = 0;
  [[nodiscard]] virtual bool passed(Ticket stamp) = 0;
  [[nodiscard]] virtual double seconds(Ticket from, Ticket to) = 0;

  /// Device work, recorded once and replayed with the same arguments: one CUDA graph; on the CPU, the calls again.
  class Recording {
   public:
    virtual ~Recording() = default;
    virtual void replay() = 0;
  };
  /// Calls `work`, which must only queue device work that has run before. It is not done until replay().
  [[nodiscard]] virtual std::unique_ptr<Recording> record(std::function<void()> work) = 0;

  [[nodiscard]] virtual std::unique_ptr<Conv2d> conv2d(const ConvSpec&) = 0;
  [[nodiscard]] virtual std::unique_ptr<BatchNorm> batch_norm(const BatchNormSpec&) = 0;
  [[nodiscard]] virtual std::unique_ptr<Linear> linear(int n, int in, int out) = 0;

  /// What was tried; empty where the library decides by itself.
  [[nodiscard]] virtual std::vector<Trial> trials() const { return {}; }

  Counters counters;
};

struct BackendOptions {
  std::string device = "auto";  ///< auto | cpu | cuda
  int threads = 1;              ///< CPU threads of this rank
  int node_rank = 0;            ///< among the ranks of this node: picks the GPU
  std::string math = "tf32";    ///< f32 | tf32 (where the GPU has it): of products of f32 numbers
  bool deterministic = false;   ///< the same bits in every run: GPU algorithms by rule, not by timing
};

/// Error(device) where the device cannot be had. auto: the GPU where there is one, else the CPU.
[[nodiscard]] std::unique_ptr<Backend> make_backend(const BackendOptions&);

/// Why this program cannot use a GPU here; empty if it can.
[[nodiscard]] std::string cuda_missing();
/// Text for a person: GPUs, driver, toolkit, libraries, and what is wrong with them.
[[nodiscard]] std::string cuda_report();

[[nodiscard]] std::string onednn_version();
[[nodiscard]] std::string cuda_version();  ///< of toolkit and cuDNN, or "not built"

}  // namespace dat
