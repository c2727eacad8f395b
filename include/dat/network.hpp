#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

/// The kinds of nodes. The work of a kind in either program is in src/network/nodes/.
enum class Op : std::uint8_t { input, normalize, convolution, batch_norm, relu, silu, add, max_pool, pool, linear };
constexpr std::size_t kOps = static_cast<std::size_t>(Op::linear) + 1;  ///< the last one's number, and one more

/// One operation of a network and its only result. Nodes are numbered in the order of computation; node 0 are the
/// images.
struct Node {
  Op op = Op::input;
  std::vector<int> inputs;  ///< the nodes whose results it reads
  /// Shape of the result, per sample, with the padding; pool and linear: h = w = 1.
  int c = 0, h = 1, w = 1;
  int kernel = 0, stride = 1, pad = 0;  ///< convolution, max pool
  int extra_pad = 0;                    ///< convolution: see ConvSpec
  /// The parameters of the node, as numbers of segments; -1: it has none. The parameters of a batch norm are gamma and
  /// beta.
  int weight = -1, bias = -1;
  int norm = -1;  ///< batch norm: number in Graph::norms

  /// Returns whether its results are images, or normalized ones: f32 in the backend's image_layout.
  [[nodiscard]] bool makes_images() const { return op == Op::input || op == Op::normalize; }
};

/// A batch norm's place in the arrays of statistics, which hold the statistics of all batch norms one after the other.
struct Norm {
  std::string name;        ///< PyTorch's, e.g. "layer1.0.bn1"
  int channels = 0;        ///< channels, padding included
  std::int64_t begin = 0;  ///< first element of the batch norm in such an array
  int padding = 0;         ///< the last channels, which no file holds: see Segment

  [[nodiscard]] int file_channels() const { return channels - padding; }
};

/// (x - mean) / standard deviation of each channel, by which a network normalizes its images before its first
/// convolution. Attacks see and change the images themselves, in [0, 1]. Where both are empty, images are taken as they
/// are.
struct Normalization {
  std::vector<float> mean, deviation;  ///< one number a channel each; standard deviations are above 0
};

/// The normalization that a text names: "none"; "cifar10" or "cifar100" (the numbers in RobustBench's
/// dm_wide_resnet.py); "imagenet" (torchvision's); or the means of all channels, then their standard deviations,
/// separated by commas. Error(usage): the text is none of these.
[[nodiscard]] Normalization normalization_from(const std::string& text);

/// Activation after the batch norms: max(x, 0), or x / (1 + exp(-x)), which is also called Swish.
enum class Activation : std::uint8_t { relu, silu };

/// The activation of this name, relu or silu. Error(usage): another name.
[[nodiscard]] Activation activation_from(const std::string& name);

/// The description of a network, without numbers. NetworkBuilder makes it.
struct Graph {
  std::vector<Node> nodes;                      ///< nodes in the order of computation; the last one makes the logits
  std::vector<Segment> segments;                ///< the parameters, in PyTorch's order, without gaps
  std::vector<Norm> norms;                      ///< the batch norms, in the order of their nodes
  std::int64_t parameters = 0, statistics = 0;  ///< elements of all segments; channels of all batch norms
  Normalization normalization{};                ///< constants of Op::normalize, where the network has that node

  /// Readers of each node's result; a node that reads it twice is there twice.
  [[nodiscard]] std::vector<std::vector<int>> consumers() const;
  /// Channels of the batch norms whose parameters are among the first `segments`, and which come first.
  [[nodiscard]] std::int64_t statistics_of(int segments) const;
  /// Multiply-adds of one forward pass of one sample, of convolutions only, with the channels of the padding.
  [[nodiscard]] double macs() const;
};

/// Placement of a convolution's padding.
enum class Padding : std::uint8_t {
  around,  ///< kernel/2 on all sides
  same  ///< padding as small as n/stride pixels need, rounded up, half of it on either side, an odd rest below and at
        ///< the right: TensorFlow's SAME
};

struct NetworkOptions {
  int width = 64;    ///< channels of the first stage
  int size = 32;     ///< height = width of the images
  int channels = 3;  ///< channels of the images
  int classes = 10;
  Activation activation = Activation::relu;
  Normalization normalization{};
};

/// Records a network, node by node. Each of these functions adds a node, and returns its number for the nodes that read
/// it. Names are PyTorch's names of modules; "name.weight" and "name.bias" become the names of the parameters.
///
/// To be lowered to programs, a network begins with one convolution of the images (NetworkBuilder::input) and ends with
/// one linear layer.
class NetworkBuilder {
 public:
  /// Error(usage): a width out of range; a normalization of another number of channels. Error(data): images smaller
  /// than 8 x 8 pixels.
  explicit NetworkBuilder(const NetworkOptions& options);

  /// The images, normalized where the options say so.
  [[nodiscard]] int input() const { return graph_.normalization.mean.empty() ? 0 : 1; }
  /// Sets the initial distribution of the weights of the convolutions that follow, and of the biases of the linear
  /// layers; by default PyTorch's (Initial::uniform).
  void begin_weights(Initial convolutions, Initial linear_bias = Initial::uniform);
  /// A convolution with a square kernel and no bias. The result is padded up to a multiple of kChannels.
  int convolution(const std::string& name, int x, int channels, int kernel, int stride,
                  Padding padding = Padding::around);
  int batch_norm(const std::string& name, int x);
  int relu(int x);
  /// The activation that the options name.
  int activation(int x);
  int add(int a, int b);
  /// The largest value in each window of kernel x kernel pixels, which are stride pixels apart; around x are kernel/2
  /// pixels that are never the largest. The first of equal ones, row by row, gets the gradient; and NaN wins (PyTorch).
  int max_pool(int x, int kernel, int stride);
  /// The mean over all pixels.
  int pool(int x);
  /// A linear layer with bias, which nothing reads. x has one pixel: the result of a pool.
  void linear(const std::string& name, int x, int classes);

  /// Begins a unit of JointSpar's coarser granularities. Parameters that are recorded from here on belong to it.
  void begin_block(const std::string& name) { block_ = name; }
  void begin_module(const std::string& name) { module_ = name; }

  /// Channels of the result of a node, without the padding.
  [[nodiscard]] int channels(int x) const {
    return graph_.nodes[static_cast<std::size_t>(x)].c - channel_padding_[static_cast<std::size_t>(x)];
  }
  /// The recorded network; the builder is empty afterwards.
  [[nodiscard]] Graph finish() { return std::move(graph_); }

 private:
  /// Unit of channels of all devices: 16 floats with AVX-512, 8 with AVX2, 16 bytes on a GPU.
  static constexpr int kChannels = 16;
  int push(Node node, int channel_padding = 0);
  int pointwise(Op op, const std::vector<int>& inputs);
  int segment(const std::string& name, std::vector<int> shape, int padding_out, int padding_in, Initial initial);
  [[nodiscard]] int channel_padding(int x) const { return channel_padding_[static_cast<std::size_t>(x)]; }
  Graph graph_;
  std::vector<int> channel_padding_;  ///< padding of the result of each node
  Activation activation_;
  Initial convolutions_ = Initial::uniform, linear_bias_ = Initial::uniform;
  std::string block_, module_;
};

/// Networks by name, and those whose names say how deep and how wide they are.
class Networks : public Registry<Graph(const NetworkOptions&)> {
 public:
  using Registry::Registry;

  /// The forms of such names, with D for the depth, 6k + 4, and W for the widening factor: "wrn_D_W".
  [[nodiscard]] static std::vector<std::string> forms();
  /// Function that makes the network. Error(usage): there is none of this name; the message lists names and forms.
  [[nodiscard]] std::function<Graph(const NetworkOptions&)> at(const std::string& name) const;
  /// Family::cites, of names of the forms, too.
  [[nodiscard]] std::string cites(const std::string& name) const;
};
[[nodiscard]] const Networks& networks();
/// Meaning of the forms, for messages and help.
[[nodiscard]] std::string about_networks();
/// Returns whether a name has one of the forms, with a depth and a widening factor that there can be.
[[nodiscard]] bool is_formed_network(const std::string& name);

/// The initial values of a parameter as its Segment::initial says, from the counted generator: segment k of `segments`,
/// in PyTorch's order, without the padding.
[[nodiscard]] std::vector<float> initial_values(const std::vector<Segment>& segments, std::size_t k,
                                                std::uint64_t seed);

/// The published width of a network, in channels of its first stage.
[[nodiscard]] int default_width(const std::string& network);
/// The name of the activation that a network was published with, relu or silu.
[[nodiscard]] std::string default_activation(const std::string& network);

/// Parameters that a training leaves as they are: the first ones, in the order of the network.
struct Freezing {
  int segments = 0;     ///< number of segments that are frozen
  bool always = false;  ///< true: frozen in all steps, and no training pass is asked for the gradient of its images
};

/// A network with its numbers on a device: parameters, gradients, and the running statistics of its batch norms.
/// Programs compute with them. Code that changes a parameter or a running statistic raises parameters.version, by which
/// programs see that their packed copies are old.
class Model {
 public:
  static constexpr float kEpsilon = 1e-5F, kMomentum = 0.1F;  ///< constants of batch norm: PyTorch's defaults

  /// All numbers are zero until initialize() or upload(). The backend must outlive the model. Error(device): there is
  /// not enough memory.
  Model(Backend& backend, Graph graph, Granularity granularity, Freezing freezing = {});

  /// initial_values() for the parameters; running mean 0, variance 1. The values do not depend on the number of ranks.
  void initialize(std::uint64_t seed);

  /// Says whether the parameters that may be frozen stand still from here on; at first they do. Then training programs
  /// take the running statistics for the batch norms among them. Raises parameters.version where that changes.
  void freeze(bool on);
  /// Returns whether the parameters of a node, named by one of its segments, are frozen now.
  [[nodiscard]] bool stands_still(int segment) const { return segment < frozen; }

  /// Copies one segment of a flat array [parameters.size] on the device (values, gradients or an optimizer's) to the
  /// host, in PyTorch's shape and order; and back, which raises parameters.version.
  [[nodiscard]] std::vector<float> download(const Segment& segment, const float* from) const;
  void upload(const Segment& segment, const std::vector<float>& values, float* to);

  /// First value of a segment.
  [[nodiscard]] float* values(int segment) const {
    return parameters.values + parameters.segments[static_cast<std::size_t>(segment)].begin;
  }

  Backend& backend;
  Graph graph;
  const Freezing freezing;
  int frozen = 0;  ///< the first segments that stand still now: all that freezing says, or none
  Parameters parameters;
  float *running_mean, *running_variance;  ///< [graph.statistics] on the device
  std::int64_t batches_tracked = 0;        ///< PyTorch's num_batches_tracked, the same for all batch norms
};

}  // namespace dat
