#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dat/network.hpp"
#include "dat/planner.hpp"

namespace dat {

/// Places of gamma and beta of the batch norms' channels in the parameters, [channels] on the device.
struct NormPlaces {
  std::int32_t *gamma = nullptr, *beta = nullptr;
};

/// The network as the attack and the evaluation see it: a function of the images alone. Weights and running statistics
/// are constants, folded into the convolutions, and the only gradient is the gradient of the images. Samples do not
/// influence each other, so unused samples may hold anything.
///
/// Life: the constructor plans the program; Backend::commit_workspace() makes the memory for this and all other
/// programs; then forward() and backward() run in pairs. Activations lie in memory that all programs share: between a
/// forward call and the backward call that belongs to it, no other program of this backend may run. logits() and
/// dlogits() are the program's own.
class FrozenProgram {
 public:
  /// Plans a program.
  ///
  /// @param model    The network and its numbers. The model must outlive the program, and its graph must not change.
  /// @param n        The number of samples in every call.
  /// @param storage  The type of activations, of their gradients and of the packed weights. Images, logits and sums are
  ///                 f32 in any case.
  /// @param of       The graph of the same network for images of another size, which must outlive the program; null:
  ///                 the model's own.
  ///
  /// Error(usage): the backend refuses this storage, or the network has a form that cannot be lowered: other than one
  /// convolution of the images at the beginning and one linear layer at the end. Further errors: Backend::conv2d.
  FrozenProgram(Model& model, int n, DType storage = DType::f32, const Graph* of = nullptr);

  /// One program for each of these numbers of samples. The packed weights of the programs lie side by side and take one
  /// turn together: each program packs once after the model has changed, in whatever order the programs run. Memory is
  /// needed for the packed weights of all programs, but for the activations of the largest only.
  [[nodiscard]] static std::vector<std::unique_ptr<FrozenProgram>> of_sizes(Model& model, const std::vector<int>& sizes,
                                                                            DType storage = DType::f32,
                                                                            const Graph* of = nullptr);
  ~FrozenProgram();

  /// Folds batch norms and packs weights, if parameters.version has changed since the last time, or if another program
  /// has used the memory of the packed weights; else it does nothing. forward() calls it. Code that records forward()
  /// (Backend::record) must call it before recording and before every replay: a recording would not ask.
  void refresh();

  /// Computes logits().
  ///
  /// @param x  [n] images in image_layout, f32, on the device.
  void forward(const float* x) { forward(x, n_); }
  /// Computes logits() of the first `wanted` samples, for this call and the backward call that belongs to it. The other
  /// samples may be left out; on the CPU that saves nearly all of their time. A wanted sample gets the same bits in any
  /// case.
  void forward(const float* x, int wanted);

  /// Computes the gradient of the images from dlogits(), which the caller has set, for the x of the last forward call.
  ///
  /// @param dx      [n] images in image_layout, f32: where the gradient goes.
  /// @param update  Where update.x is not null, PGD's step is made at these images right away; the arrays of `update`
  ///                are [n] images, too. dx may then be left as it was.
  void backward(float* dx, const PgdUpdate& update = {});

  /// The factor by which dlogits should be multiplied, so that gradients in f16 do not become zero: a power of two,
  /// which also multiplies dx.
  [[nodiscard]] float gradient_scale() const { return storage_ == DType::f16 ? 1024.0F : 1.0F; }

  [[nodiscard]] int n() const { return n_; }
  [[nodiscard]] float* logits() const { return logits_; }    ///< [n, classes], on the device
  [[nodiscard]] float* dlogits() const { return dlogits_; }  ///< [n, classes], on the device
  /// One line per convolution for reports: its name and the library's code for it.
  [[nodiscard]] std::vector<std::string> implementations() const;

 private:
  struct Step;
  /// Counts, for the programs whose packed weights lie side by side, how often others have used that place.
  struct Turn {
    std::uint64_t number = 0;
  };
  FrozenProgram(Model& model, int n, DType storage, const Graph* of, std::shared_ptr<Turn> turn);
  void lower();

  Model& model_;
  const Graph& graph_;
  int n_;
  DType storage_;
  std::vector<Step> steps_;
  Planner planner_;
  float *logits_ = nullptr, *dlogits_ = nullptr, *scale_ = nullptr, *shift_ = nullptr;
  NormPlaces norms_;
  std::unique_ptr<Backend::Recording> weights_;  ///< packs them, with the batch norms' scale and shift
  std::shared_ptr<Turn> turn_;
  /// Version of the model, and number of the turn, when the weights were packed.
  std::uint64_t version_ = 0, packed_in_ = 0;
};

/// The storage of this name: f32, f16 or bf16. Error(usage): another name.
[[nodiscard]] DType storage_from(const std::string& name);

/// Gradients that a backward pass of the training program computes, and their destinations. Hardly anything
/// else is computed.
struct GradientRequest {
  /// The set whose active layers get weight gradients; null: no layer gets any.
  const ActiveSet* weights = nullptr;
  /// Destination of weight gradients: [parameters.size] on the device, in the layout of the parameters. Only the
  /// segments of active layers are written. Must not be null where weights are wanted.
  float* gradients = nullptr;
  /// Weight gradients are added to what is in `gradients`, instead of overwriting it.
  bool accumulate = false;
  /// Destination of the gradient of the images: [n] images in image_layout; null: not wanted.
  float* input = nullptr;
  /// Called with the number of each segment whose gradient has been queued completely, last layer first; null: nobody
  /// is called.
  const std::function<void(int segment)>* ready = nullptr;
  /// True: as for TrainingProgram::forward.
  bool whole = false;
};

/// The network as it learns: batch norm with the statistics of the n samples of the call, activations kept, gradients
/// of weights and images. Life and memory are as for FrozenProgram. Batch norms that stand still (Model::freeze) have
/// the running statistics, and zeros in statistics(). A part that is frozen in all steps
/// (Freezing::always) has no backward pass, and its activations are not kept.
///
/// Where the backend replays recordings, and passes are not recorded as a whole, the program records what is the same
/// in every pass: the forward pass, and the pieces of the backward pass between the gradients of parameters. The
/// program records in its first forward call, which therefore takes longer and allocates. Work that depends on the
/// request is called one by one: the gradients of parameters, the convolution that reads the images, and a piece of
/// which not everything is wanted.
class TrainingProgram {
 public:
  /// Plans a program for n samples at a time; `of` and errors as of FrozenProgram; also Error(usage) where n is so
  /// small that a batch norm would have one value per channel.
  ///
  /// @param storage  The type of activations, of their gradients and of the weights in convolutions. Weights and their
  ///                 gradients are f32 for the caller, and so are images, logits, statistics, sums, and all after the
  ///                 pool.
  /// @param scale    [2] on the device, S and 1/S, which may change between two passes: gradients within the network
  ///                 are S times as large, so that they do not become zero in f16. dlogits and all results are without
  ///                 it. Null: 1.
  /// @param again    Results of batch norms and activations are not kept for the backward pass, but made again there
  ///                 from the results of convolutions: less memory, and the same bits.
  TrainingProgram(Model& model, int n, const Graph* of = nullptr, DType storage = DType::f32,
                  const float* scale = nullptr, bool again = false);
  ~TrainingProgram();

  /// Packs the weights where necessary, as FrozenProgram::refresh; forward() calls it.
  void refresh();

  /// Computes logits() and the batch statistics.
  ///
  /// @param x      [n] images in image_layout, f32, on the device.
  /// @param whole  The caller records the pass, or calls it before recording: the program queues all of it, call by
  ///               call, and plays no recordings of its own. Code that replays it calls refresh() before.
  void forward(const float* x, bool whole = false);

  /// Computes what is asked for, from dlogits(), which the caller has set. Stops below the lowest layer whose gradient
  /// is wanted.
  ///
  /// @param x  The images of the last forward call, unchanged.
  void backward(const float* x, const GradientRequest& request);
  /// Calls `ready` for every segment of active layers, in the order of backward().
  void announce(const ActiveSet& active, const std::function<void(int segment)>& ready) const;

  /// Measures what the weight gradient of each layer [layers] costs, in seconds: each tensor's gradient alone, the
  /// least of some runs. The gradients of gamma and beta come with the gradient of the batch norm's input and cost next
  /// to nothing. The call computes on numbers that mean nothing: the results of forward() and backward() are void then,
  /// and so is `gradients` [parameters.size].
  ///
  /// @param x  [n] images in image_layout, f32, on the device.
  [[nodiscard]] std::vector<double> weight_gradient_seconds(const float* x, float* gradients);

  [[nodiscard]] DType storage() const { return storage_; }
  [[nodiscard]] float* logits() const { return logits_; }    ///< [n, classes], on the device
  [[nodiscard]] float* dlogits() const { return dlogits_; }  ///< [n, classes], on the device
  /// Biased variance of the last forward call, [graph.statistics] on the device.
  [[nodiscard]] const float* batch_variance() const { return variance_; }
  /// Values that the last forward call gives to the running statistics, [2 * graph.statistics], on the device: the
  /// means, then the unbiased variances.
  [[nodiscard]] const float* statistics() const { return mean_; }
  /// Bytes that the program asked for with Backend::request_workspace.
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  struct Step;
  struct Piece;
  void lower();
  void cut();
  void record(const float* x);
  void forward_rest();
  void backward(const Piece& piece);

  Model& model_;
  const Graph& graph_;
  int n_;
  DType storage_;
  const float* scale_;
  bool again_;
  std::vector<Step> steps_;
  std::vector<Piece> pieces_;                    ///< pieces of the backward pass, in its order
  std::unique_ptr<Backend::Recording> forward_;  ///< null: not recorded (yet)
  std::unique_ptr<Backend::Recording> weights_;  ///< packs them
  Planner planner_;
  std::size_t workspace_bytes_ = 0;
  float *logits_ = nullptr, *dlogits_ = nullptr, *norm_gradients_ = nullptr;
  float *mean_ = nullptr, *unbiased_variance_ = nullptr, *variance_ = nullptr;  ///< one block, in this order
  float* factors_ = nullptr;                             ///< m/(m - 1), m values per channel: biased to unbiased
  float *norm_scale_ = nullptr, *norm_shift_ = nullptr;  ///< scale and shift of frozen batch norms, as in FrozenProgram
  NormPlaces norm_places_;
  int frozen_ = 0;  ///< Model::frozen of the recordings
  int border_ = 0;  ///< the first value that has a backward pass
  std::uint64_t version_ = 0;
};

}  // namespace dat
