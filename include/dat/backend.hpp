#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dat/tensor.hpp"

namespace dat {

/// Description of a convolution of a program: square kernel, no groups, no dilation. There are two kinds. A frozen
/// convolution is for weights that stay as they are over many calls (attack, evaluation), and has a bias, the fused end
/// of `accumulate` and `relu`, and no weight gradient. The other kind, for training, is y = conv(x), with a weight
/// gradient, without bias or fused end.
struct ConvSpec {
  int n = 0;                   ///< samples in every call
  int c_in = 0, h = 0, w = 0;  ///< channels, height and width of x
  int c_out = 0;               ///< channels of y
  int kernel = 3, stride = 1;
  int pad = 1;                  ///< zeros around x
  int extra_pad = 0;            ///< further rows of zeros below, and columns at the right
  bool frozen = false;          ///< true: for weights that stay as they are over many calls
  bool accumulate = false;      ///< frozen: adds to what lies in y before the call (a residual)
  bool relu = false;            ///< frozen: a ReLU is the last thing that happens
  bool keeps_residual = false;  ///< true: with `accumulate`, the residual lies elsewhere and stays as it is
  bool image = false;           ///< x are images: f32 in image_layout; else spec.storage in activation_layout
  bool relu_input = false;      ///< frozen: x is what a ReLU left; see Conv2d::backward_relu
  bool other_gradient = false;  ///< true: with `relu_input`, x has another reader, whose part of the gradient is added
  /// Type of x, y and their gradients, but for images. Weights and their gradients are f32 for the caller.
  DType storage = DType::f32;

  [[nodiscard]] int h_out() const { return (h + 2 * pad + extra_pad - kernel) / stride + 1; }
  [[nodiscard]] int w_out() const { return (w + 2 * pad + extra_pad - kernel) / stride + 1; }
  /// Multiply-adds of one pass over all n samples.
  [[nodiscard]] double macs() const { return double(n) * c_out * h_out() * w_out() * c_in * kernel * kernel; }
};

/// A planned convolution, made by Backend::conv2d.
///
/// x and dx are [n, c_in, h, w], y and dy are [n, c_out, h_out, w_out]: device memory, in the layouts and types that
/// the specification says. Every call queues work and allocates nothing. Before the first call the workspace must be
/// committed and the weights loaded; before any call the program must have the turn (Backend::take_turn).
class Conv2d {
 public:
  virtual ~Conv2d() = default;

  /// Packs the weights [c_out][kh][kw][c_in] for the passes below. To be called again when they have changed, or when
  /// take_turn says that the packed copies are gone.
  ///
  /// Frozen: the weights of output channel o are multiplied by scale [c_out], and bias [c_out] is copied: this is how a
  /// batch norm is folded in. A null `scale`: no scale; a null `bias`: the bias stays as it is, zero at first.
  /// Training: both must be null, and in f32 the `weights` themselves must stay where they are, and unchanged, until
  /// the next call.
  virtual void load(const float* weights, const float* scale, const float* bias) = 0;

  /// Frozen: from now on only the first `samples` of the n are asked for. Where that saves time, the other samples are
  /// left out: forward() and backward_data() then leave y, bits and dx of these as they are.
  virtual void want(int /*samples*/) {}

  /// y = conv(x), with the fused end of a frozen convolution: y = relu(conv(x) + bias + y).
  ///
  /// @param bits  Frozen with ReLU: where the result is positive, bit j of word g for element 16 g + j of y in memory.
  ///              [ceil(elements of y / 16)]; null: not wanted. Else: must be null.
  virtual void forward(const void* x, void* y, std::uint16_t* bits) = 0;
  /// forward() of a convolution with ConvSpec::keeps_residual, and only of such a one: y = relu(conv(x) + bias +
  /// residual).
  ///
  /// @param residual  [n, c_out, h_out, w_out], as y. The residual and y must not overlap.
  virtual void forward(const void* /*x*/, const void* /*residual*/, void* /*y*/, std::uint16_t* /*bits*/) {
    assert(!"only for convolutions whose residual is kept");
  }

  /// Operation that forward_of_norm() applies to x before the convolution: relu(scale * x + shift).
  struct InputNorm {
    const float *scale, *shift;  ///< [c_in]
    std::uint16_t* open;         ///< gets where the result is positive, in words of bits: [ceil(elements of x / 16)]
  };
  /// forward() of what InputNorm makes of x. x itself stays as it is.
  virtual void forward_of_norm(const void* /*x*/, const InputNorm&, void* /*y*/, std::uint16_t* /*bits*/) {
    assert(!"only where Backend::takes_norm() says so");
  }

  /// The input gradient, dx = conv^T(dy). Not for images.
  ///
  /// @param accumulate  The gradient is added to what is in dx. Only where backward_data_accumulates() says that this
  ///                    is possible.
  void backward_data(const void* dy, void* dx, bool accumulate) { backward_data(dy, dx, accumulate, {}); }
  [[nodiscard]] virtual bool backward_data_accumulates() const = 0;

  /// Words of bits as forward() makes them: where a bit is not set, dy counts as zero, and so does the dx that is added
  /// to. Null: everything counts.
  struct Masks {
    const std::uint16_t* dy = nullptr;  ///< [ceil(elements of y / 16)]
    const std::uint16_t* dx = nullptr;  ///< [ceil(elements of x / 16)], with `accumulate` only
  };
  /// The input gradient with masks. Both masks must be null unless backward_data_masks() says that they are possible.
  virtual void backward_data(const void* dy, void* dx, bool accumulate, const Masks& masks) = 0;
  [[nodiscard]] virtual bool backward_data_masks() const = 0;

  /// The input gradient through the ReLU that made x (ConvSpec::relu_input): dx = conv^T(dy) + other, and zero where x
  /// is not positive. So nobody has to keep, or apply, mask bits of that ReLU.
  ///
  /// @param x      What forward() was given.
  /// @param other  [n, c_in, h, w]: the part of x's gradient that another reader of x has made. Null without
  ///               ConvSpec::other_gradient.
  /// @param dx     Overwritten; dx must not overlap the other arrays.
  virtual void backward_relu(const void* /*dy*/, const void* /*x*/, const void* /*other*/, void* /*dx*/) {
    assert(!"only where backward_relu_pays() says so");
  }
  /// Returns whether the backend has backward_relu() for this convolution, and has found it faster than backward_data()
  /// and a mask.
  [[nodiscard]] virtual bool backward_relu_pays() const { return false; }

  /// The gradient of images, in f32, then PGD's step at these images where `update` has one (update.x not null). With a
  /// step, dx may be left as it was. Only where spec.image is set.
  ///
  /// @param factor  A number on the device that dx is multiplied by; null: 1.
  virtual void backward_image(const void* dy, float* dx, const PgdUpdate& update, const float* factor = nullptr) = 0;

  /// The weight gradient: dw [c_out][kh][kw][c_in], f32, becomes the gradient or, with `accumulate`, has it added. Not
  /// of a frozen convolution.
  ///
  /// @param factor  A number on the device that the gradient is multiplied by; null: 1. With 16-bit storage only.
  virtual void backward_weights(const void* x, const void* dy, float* dw, bool accumulate,
                                const float* factor = nullptr) = 0;

  /// The library's names of the chosen kernels, for reports.
  [[nodiscard]] virtual std::string implementation() const = 0;
};

struct BatchNormSpec {
  int n = 0, c = 0, h = 0, w = 0;  ///< shape of x, which has more than one value per channel
  bool of_sum = false;             ///< x is the sum of two arrays, which forward() makes
  bool residual = false;           ///< another array is added to what the norm makes
  bool relu = false;               ///< a ReLU is the last thing that happens
  bool again = false;              ///< y will be made a second time (BatchNorm::again)
  float epsilon = 1e-5F;
  DType storage = DType::f32;  ///< storage of x, residual, y and their gradients
};

/// A planned batch norm with the statistics of the batch, made by Backend::batch_norm; with the addition before it, and
/// with the addition and the ReLU after it.
///
/// x, residual, y and their gradients are [n, c, h, w] in activation_layout, of spec.storage; everything else is [c]
/// and f32; all on the device.
class BatchNorm {
 public:
  virtual ~BatchNorm() = default;

  /// y = gamma * (x - mean) / sqrt(variance + epsilon) + beta + residual, then the ReLU. Writes mean and variance of
  /// this batch, the variance biased. residual: null without spec.residual.
  virtual void forward(const void* x, const void* residual, const float* gamma, const float* beta, void* y, float* mean,
                       float* variance) = 0;
  /// forward() of x = a + b, which is written, too. With spec.of_sum, and only then.
  struct Sum {
    const void *a, *b;  ///< arrays of x's shape that lie elsewhere
    void* x;
  };
  virtual void forward(const Sum& sum, const void* residual, const float* gamma, const float* beta, void* y,
                       float* mean, float* variance) = 0;

  /// Destinations of the gradients of one call.
  struct Gradients {
    void* dx;                      ///< may be dy without spec.residual; else it overlaps nothing
    const void* addend = nullptr;  ///< array that is added to dx, such as the part of another reader of x; may be null
    void* dresidual = nullptr;     ///< dy through the ReLU, with spec.residual; may be dy; null: not wanted
    float *dgamma = nullptr, *dbeta = nullptr;  ///< null: not wanted
    bool accumulate = false;                    ///< dgamma and dbeta are added to what is there
    const float* factor = nullptr;              ///< factor of dgamma and dbeta, on the device; null: 1
  };
  /// Makes y of the last forward call once more, of the same bits, from what is as it was there. With spec.again, and
  /// only then.
  virtual void again(const void* x, const void* residual, const float* gamma, const float* beta, const float* mean,
                     const float* variance, void* y) = 0;

  /// The gradients of the last forward call: x, y, gamma, beta, mean and variance must be what they were there. y is
  /// not looked at unless reads_result().
  virtual void backward(const void* x, const void* y, const void* dy, const float* gamma, const float* beta,
                        const float* mean, const float* variance, const Gradients& gradients) = 0;
  [[nodiscard]] virtual bool reads_result() const { return false; }

  /// The library's name of the chosen code, for reports.
  [[nodiscard]] virtual std::string implementation() const = 0;
};

/// A planned linear layer, made by Backend::linear: y [n, out] = x [n, in] * weights^T + bias [out], with weights [out,
/// in]. Everything is row-major, f32, on the device.
class Linear {
 public:
  virtual ~Linear() = default;

  virtual void forward(const float* x, const float* weights, const float* bias, float* y) = 0;

  /// dx [n, in] = dy * weights.
  virtual void backward_data(const float* dy, const float* weights, float* dx) = 0;

  /// dw [out, in] and dbias [out] become their gradients or, with `accumulate`, have them added. A null one is not
  /// wanted.
  virtual void backward_weights(const float* x, const float* dy, float* dw, float* dbias, bool accumulate) = 0;
};

/// Number of runs of each kind of pass, replays included: lets a test prove what was not computed.
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

/// One way to compute one pass of a convolution, or a batch norm, as tried while programs were planned.
struct Trial {
  std::string convolution;  ///< e.g. "3x3, 64 to 64 channels, 128 of 32x32, frozen, ReLU, f16", or "batch norm, ..."
  std::string pass;         ///< forward | input gradient [through ReLU[, adding]] | weight gradient | both ways
  std::string name;         ///< the library's name of the algorithm
  double milliseconds = 0;  ///< the least of some runs; 0: not timed
  std::string refused;      ///< reason why the candidate is refused; empty: it may be taken
};

/// One device and the libraries on it.
///
/// A backend is used in this order:
///
/// 1. Programs are planned, one after the other. Each calls plan_weights(), makes its convolutions, batch norms and
///    linear layers, and asks for the memory of its activations (request_workspace).
/// 2. commit_workspace() makes the memory that all programs share. Now the programs can run.
/// 3. Before a program runs, it takes the turn (take_turn), and packs its weights where it has to (Conv2d::load, or all
///    of them at once by loads()).
///
/// More programs may be planned later; commit_workspace() must then be called again. Once everything is planned, no
/// call allocates memory, but for record().
///
/// All work on the device is queued, and done in the order in which it was queued. On the CPU every call has done its
/// work when it returns. A backend is for one thread. Where a library fails, calls throw Error(device), or oneDNN's own
/// exception.
class Backend {
 public:
  virtual ~Backend() = default;

  /// The device on which kernels are launched for this backend.
  [[nodiscard]] virtual Device device() const = 0;
  /// The backend in words for reports, e.g. "cpu: oneDNN 2.6.3, AVX-512, 2 threads".
  [[nodiscard]] virtual std::string description() const = 0;
  /// Description of all that decides how the backend computes: the kind of device, libraries, precision. All ranks of a
  /// run must have the same text.
  [[nodiscard]] virtual std::string arithmetic() const = 0;
  /// The name of the GPU: two ranks have the same name exactly if they share the GPU. Empty for a CPU.
  [[nodiscard]] virtual std::string device_id() const = 0;
  /// The number of the GPU among those that this process sees, and the NUMA node that it is attached to; -1: no GPU, or
  /// the machine does not say.
  [[nodiscard]] virtual int gpu_number() const { return -1; }
  [[nodiscard]] virtual int numa_node() const { return -1; }

  /// Layout in memory of activations of c channels of h x w pixels.
  [[nodiscard]] virtual Layout activation_layout(int c, int h, int w) const = 0;
  /// Layout in memory of images, their gradients and perturbations.
  [[nodiscard]] virtual Layout image_layout(int c, int h, int w) const = 0;

  /// Reason why programs cannot keep activations in this type here; empty if they can.
  [[nodiscard]] virtual std::string refuses(DType storage) const = 0;

  /// Zeroed memory on the device, aligned to 64 bytes, which the backend owns until it is destroyed. `purpose` is the
  /// name under which allocations() and messages list it. Error(device): there is not so much.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, const std::string& purpose) = 0;
  template <class T>
  [[nodiscard]] T* allocate_array(std::int64_t count, const std::string& purpose) {
    return static_cast<T*>(allocate(static_cast<std::size_t>(count) * sizeof(T), purpose));
  }
  [[nodiscard]] float* allocate_floats(std::int64_t count, const std::string& purpose) {
    return allocate_array<float>(count, purpose);
  }
  /// Zeroed, pinned memory on the host, for fetch() and send(), which the backend owns, too. Error(device): there is
  /// not so much.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes, const std::string& purpose) = 0;
  template <class T>
  [[nodiscard]] T* allocate_pinned_array(std::int64_t count, const std::string& purpose) {
    return static_cast<T*>(allocate_pinned(static_cast<std::size_t>(count) * sizeof(T), purpose));
  }
  /// Makes host memory that the caller has taken otherwise pinned memory, for as long as the result lives, which must
  /// end before the memory does; null where nothing needs to be done. `data` and `bytes` are multiples of a page.
  /// Error(device): it cannot be pinned.
  [[nodiscard]] virtual std::shared_ptr<void> pin(void* /*data*/, std::size_t /*bytes*/) { return nullptr; }
  struct Allocation {
    std::string purpose;
    std::size_t bytes;
  };
  /// All allocations on the device.
  [[nodiscard]] virtual std::vector<Allocation> allocations() const = 0;
  /// Bytes that could still be allocated on the device for data that speeds things up; 0 on the CPU.
  [[nodiscard]] virtual std::size_t spare_memory() const = 0;

  /// The workspace: one block of memory that every program uses while it runs, and on whose contents no program may
  /// rely after another one has run. Each program says, while it is planned, how many bytes it needs.
  virtual void request_workspace(std::size_t bytes) = 0;
  /// Makes the workspace as large as the largest request so far, and likewise the packed weights (see plan_weights) and
  /// the scratch memory of the libraries. Does nothing where they are large enough. A block that grows moves:
  /// recordings made before are made anew when they are replayed next, and where packed weights may have moved,
  /// take_turn says that they are lost.
  virtual void commit_workspace() = 0;
  /// The beginning of the workspace; null before the first commit_workspace().
  [[nodiscard]] virtual void* workspace() const = 0;

  /// Packed weights, too, may lie in memory that programs use in turn. Call this before the first convolution of a
  /// program is made: the packed weights of those that follow lie side by side, over those of the programs before. All
  /// convolutions made until the next call have one turn together, also where they belong to several programs.
  virtual void plan_weights() {}
  /// Takes the turn for the convolutions that were made after one call of plan_weights(). `who` is any address that
  /// belongs to these convolutions alone, always the same. Call it before weights are packed, and before convolutions
  /// run.
  ///
  /// @return  false: others have had the turn since, and all packed weights of these convolutions are lost; each must
  ///          load its weights (Conv2d::load) before it runs. true: the packed weights are as they were, also where
  ///          none have been packed yet.
  [[nodiscard]] virtual bool take_turn(const void* /*who*/) { return true; }

  /// Copies in the queue, from and to any host memory. When copy_to_device returns, the host memory may change; when
  /// copy_to_host returns, the data are there, because the call waits for everything queued before.
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  /// Waits until everything that was queued is done, copies of fetch() included.
  virtual void wait() = 0;

  /// A point in the queue, which arrives when all before it is done. Only the last kTickets tickets may be asked for.
  using Ticket = std::int64_t;
  static constexpr int kTickets = 1024;
  [[nodiscard]] virtual Ticket mark() = 0;
  /// Copies to pinned memory (allocate_pinned) beside the work that is queued later. The copy takes what the work
  /// queued so far leaves on the device, which later work must not change before the ticket has arrived. Once it has
  /// arrived, the data are in `pinned`.
  [[nodiscard]] virtual Ticket fetch(void* pinned, const void* device, std::size_t bytes) = 0;
  [[nodiscard]] virtual bool arrived(Ticket) = 0;
  virtual void wait_for(Ticket) = 0;
  /// Copies from pinned memory in the queue, without waiting. The pinned memory must not change until wait() returns,
  /// or until a ticket that was drawn later has arrived.
  virtual void send(void* device, const void* pinned, std::size_t bytes) = 0;

  /// A queue of the device (a stream, as in Device) whose work runs beside all other work and after earlier fetches,
  /// for communications on the device; null on the CPU. And a point in it, as of mark().
  [[nodiscard]] virtual void* side_queue() { return nullptr; }
  [[nodiscard]] virtual Ticket mark_side() { return mark(); }
  /// Makes all work that is queued from now on, kernels and copies, wait for this ticket, too.
  virtual void queue_behind(Ticket) {}
  /// Makes kernels that are launched from now on do nothing where *flag, which is read when they run, is 0 (on a GPU).
  /// Null: they always run. Calls of libraries run in any case.
  virtual void only_where(const double* /*flag*/) { assert(!"only where work waits in a queue"); }

  /// Time on the device. A stamp is a moment in the device's queue. passed() says whether this moment has come; then
  /// seconds() returns the time from one stamp to another. Only the last kStamps stamps may be asked for.
  static constexpr int kStamps = 1024;
  [[nodiscard]] virtual Ticket stamp() = 0;
  [[nodiscard]] virtual bool passed(Ticket stamp) = 0;
  [[nodiscard]] virtual double seconds(Ticket from, Ticket to) = 0;

  /// Device work that is recorded once and replayed with the same arguments: a CUDA graph. On the CPU the calls are
  /// made again.
  class Recording {
   public:
    virtual ~Recording() = default;
    virtual void replay() = 0;
  };
  /// Records the device work that `work` queues; nothing is done before replay().
  ///
  /// @param work  Queues kernels and passes of programs, all of which have run before, and nothing else: `work` must
  ///              not allocate, wait, or copy from or to the host. Packing weights is a recording of its own: programs
  ///              are refreshed outside, before each replay. `work` is called now or at each replay, and all that it
  ///              refers to must live as long as the recording.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(std::function<void()> work) = 0;
  /// Returns whether a replay costs the host less than the calls.
  [[nodiscard]] virtual bool replays() const { return false; }

  /// A convolution, and what Conv2d::load takes.
  struct Load {
    Conv2d* conv;
    const float *weights, *scale, *bias;
  };
  /// A recording whose replay loads all of these, on a GPU in one launch. It is no part of another recording. The
  /// convolutions and all arrays must live as long, and the arrays stay where they are; the convolutions are loaded by
  /// it alone.
  [[nodiscard]] virtual std::unique_ptr<Recording> loads(std::vector<Load> all) = 0;

  /// Plans a convolution. On a GPU this tries the library's algorithms, which takes time, and memory for a moment.
  ///
  /// Call plan_weights() before the first convolution of a program. The convolution can run after commit_workspace().
  ///
  /// Error(usage): the numbers of channels are no multiples of what the device works on at once (64 bytes on the CPU
  /// with AVX-512, 32 with AVX2, 16 on a GPU), or the storage is refused. Error(data): images whose channels the device
  /// does not take. Error(device): the library has no fast or no right code for this convolution.
  [[nodiscard]] virtual std::unique_ptr<Conv2d> conv2d(const ConvSpec&) = 0;
  /// Returns whether such a frozen convolution has Conv2d::forward_of_norm: a pass less over x.
  [[nodiscard]] virtual bool takes_norm(const ConvSpec&) const { return false; }
  /// Plan a batch norm and a linear layer; errors and order as for conv2d.
  [[nodiscard]] virtual std::unique_ptr<BatchNorm> batch_norm(const BatchNormSpec&) = 0;
  [[nodiscard]] virtual std::unique_ptr<Linear> linear(int n, int in, int out) = 0;

  /// Returns whether passes of a frozen program take less time when fewer samples are asked for (Conv2d::want).
  [[nodiscard]] virtual bool leaves_samples_out() const { return false; }

  /// Trials that were made while convolutions were planned; empty where the library decides by itself.
  [[nodiscard]] virtual std::vector<Trial> trials() const { return {}; }
  /// A sentence that the user should know about how this backend was prepared; empty: nothing.
  [[nodiscard]] virtual std::string remark() const { return ""; }

  Counters counters;
  int host_threads = 1;  ///< CPU threads of this rank
};

struct BackendOptions {
  std::string device = "auto";  ///< auto: the GPU where there is one, else the CPU | cpu | cuda
  int threads = 1;              ///< CPU threads of this rank
  int node_rank = 0;            ///< among the ranks of this node: the first one keeps the file of plans
  int gpu = 0;                  ///< its number among those that this process sees
  /// Arithmetic of the multiplication of f32 numbers: f32 | tf32 (where the GPU has it) | bf16 | bf16x3 (a CPU with
  /// AMX).
  std::string math = "tf32";
  bool deterministic = false;    ///< every run leaves the same bits: GPU algorithms are chosen by rule, not by timing
  bool graphs = true;            ///< recordings are CUDA graphs; false: calls, one by one, as a debugger wants them
  double planning_seconds = 30;  ///< time for trials of GPU algorithms; once it is over, the first right ones are taken
  std::string plans{};           ///< file of the algorithms that were chosen, read and kept (plans_file()); empty: none
};

/// Makes the backend of a device. Error(usage): there is no such device. Error(device): this machine, or this build,
/// lacks the device.
[[nodiscard]] std::unique_ptr<Backend> make_backend(const BackendOptions&);
/// The user's file of chosen algorithms: $XDG_CACHE_HOME/dat_hpc/plans, or below $HOME/.cache. Empty: neither is an
/// absolute path. Or somebody listens to trials, and wants them made.
[[nodiscard]] std::string plans_file();
/// The listener of the process that is called with every trial as it is made; null: nobody.
[[nodiscard]] std::function<void(const Trial&)>& trial_listener();
/// Returns whether make_backend() makes the backend of a GPU.
[[nodiscard]] bool takes_gpu(const std::string& device);

/// Reason why this program cannot use a GPU here; empty if it can.
[[nodiscard]] std::string cuda_missing();
/// The NUMA node that each GPU is attached to which this process sees (Linux, sysfs-bus-pci); -1: not known. Empty: no
/// GPU can be used. root: the folder in which sys/bus/pci is looked for, "" but in tests.
[[nodiscard]] std::vector<int> numa_nodes_of_gpus(const std::string& root = "");
/// Text for a person: GPUs, driver, toolkit, libraries, and what is wrong with them.
[[nodiscard]] std::string cuda_report();

/// Returns whether this processor has AMX with bf16 numbers, and the system lets this process use it: --math bf16 needs
/// both.
[[nodiscard]] bool has_amx();

[[nodiscard]] std::string onednn_version();
[[nodiscard]] std::string cuda_version();  ///< versions of toolkit and cuDNN, or "not built"

}  // namespace dat
