#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

enum class Op : std::uint8_t { input, convolution, batch_norm, relu, add, pool, linear };

/// One operation of a network and its only result, [c, h, w] per sample (pool and linear: [c]).
struct Node {
  Op op = Op::input;
  std::vector<int> inputs;  ///< earlier nodes
  int c = 0, h = 1, w = 1;
  int kernel = 0, stride = 1, pad = 0;  ///< convolution
  int weight = -1, bias = -1;           ///< segments: convolution; batch norm (gamma, beta); linear
  int norm = -1;                        ///< batch norm: index in Graph::norms
};

/// A batch norm's place in the flat blocks of statistics.
struct Norm {
  std::string name;  ///< PyTorch's, e.g. "layer1.0.bn1"
  int channels = 0;
  std::int64_t begin = 0;
};

/// The description of a network: nodes in the order of computation, parameters in PyTorch's order.
struct Graph {
  std::vector<Node> nodes;
  std::vector<Segment> segments;
  std::vector<Norm> norms;
  std::int64_t parameters = 0, statistics = 0;

  [[nodiscard]] std::vector<std::vector<int>> consumers() const;
  [[nodiscard]] double macs() const;  ///< of one forward pass of one sample, convolutions only
};

struct NetworkOptions {
  int width = 64;  ///< channels of the first stage
  int size = 32;   ///< height = width of the images
  int channels = 3;
  int classes = 10;
};

/// Records a network. Results are node numbers. Names are PyTorch's module names.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(const NetworkOptions& options);

  [[nodiscard]] int input() const { return 0; }
  /// Square kernel, padding kernel/2, no bias.
  int convolution(const std::string& name, int x, int channels, int kernel, int stride);
  int batch_norm(const std::string& name, int x);
  int relu(int x);
  int add(int a, int b);
  int pool(int x);  ///< global average
  int linear(const std::string& name, int x, int classes);

  /// Units of JointSpar's coarser granularities: what is recorded from here on belongs to them.
  void begin_block(const std::string& name) { block_ = name; }
  void begin_module(const std::string& name) { module_ = name; }

  [[nodiscard]] int channels(int x) const { return graph_.nodes[static_cast<std::size_t>(x)].c; }
  [[nodiscard]] Graph finish() { return std::move(graph_); }

 private:
  int push(Node node);
  int segment(const std::string& name, std::vector<int> shape);
  Graph graph_;
  std::string block_, module_;
};

[[nodiscard]] const Registry<Graph(const NetworkOptions&)>& networks();

/// A network with its numbers on a device: parameters, gradients, and the running statistics of its batch norms.
class Model {
 public:
  static constexpr float kEpsilon = 1e-5F, kMomentum = 0.1F;  ///< of batch norm: PyTorch's defaults

  Model(Backend& backend, Graph graph, Granularity granularity);

  /// PyTorch's initial values (Conv2d, Linear: U(-1/sqrt(fan_in), 1/sqrt(fan_in)); gamma 1, beta 0; running mean 0,
  /// variance 1), from the counted generator: the same for any number of ranks.
  void initialize(std::uint64_t seed);

  /// One array of the flat block `from` [parameters.size] in PyTorch's shape and order, and back.
  [[nodiscard]] std::vector<float> download(const Segment& segment, const float* from) const;
  void upload(const Segment& segment, const std::vector<float>& values, float* to);

  /// Where the values of a segment, or their gradients, begin.
  [[nodiscard]] float* values(int segment) const { return parameters.values + at(segment).begin; }
  [[nodiscard]] float* gradients(int segment) const { return parameters.gradients + at(segment).begin; }
  /// How the result of a node lies on this backend.
  [[nodiscard]] Layout layout(int node) const;

  Backend& backend;
  Graph graph;
  Parameters parameters;
  float *running_mean, *running_variance;  ///< [graph.statistics]
  std::int64_t batches_tracked = 0;

 private:
  [[nodiscard]] const Segment& at(int segment) const { return parameters.segments[static_cast<std::size_t>(segment)]; }
};

}  // namespace dat
