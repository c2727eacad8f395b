#include <algorithm>
#include <limits>

#include "dat/network.hpp"

namespace dat {

namespace {

/// Height and width of the result of a node with windows.
void count_windows(Node& node, const Node& from) {
  const auto windows = [&](int size) { return (size + 2 * node.pad + node.extra_pad - node.kernel) / node.stride + 1; };
  node.h = windows(from.h);
  node.w = windows(from.w);
}

}  // namespace

std::vector<std::vector<int>> Graph::consumers() const {
  std::vector<std::vector<int>> all(nodes.size());
  for (std::size_t k = 0; k < nodes.size(); ++k)
    for (const int input : nodes[k].inputs) all[static_cast<std::size_t>(input)].push_back(static_cast<int>(k));
  return all;
}

std::int64_t Graph::statistics_of(int segments_before) const {
  std::int64_t count = 0;
  for (const Node& node : nodes)
    if (node.op == Op::batch_norm && node.weight < segments_before) count += node.c;
  return count;
}

double Graph::macs() const {
  double total = 0;
  for (const Node& node : nodes)
    if (node.op == Op::convolution)
      total += double(node.c) * node.h * node.w * nodes[static_cast<std::size_t>(node.inputs[0])].c * node.kernel *
               node.kernel;
  return total;
}

NetworkBuilder::NetworkBuilder(const NetworkOptions& options) : activation_(options.activation) {
  require(options.width >= 1 && options.width <= 4096, ExitCode::usage, "--width must be between 1 and 4096, not ",
          options.width);
  require(options.size >= 8, ExitCode::data, "images of ", options.size, " pixels are too small: at least 8");
  push({.op = Op::input, .inputs = {}, .c = options.channels, .h = options.size, .w = options.size});
  const std::size_t normalized = options.normalization.mean.size();
  if (normalized == 0) return;
  require(normalized == static_cast<std::size_t>(options.channels), ExitCode::usage, "--normalize has ", normalized,
          normalized == 1 ? " mean" : " means", ", and the images have ", options.channels,
          options.channels == 1 ? " channel" : " channels",
          "; give one for each, and then as many standard deviations");
  graph_.normalization = options.normalization;
  pointwise(Op::normalize, {0});
}

int NetworkBuilder::push(Node node, int channel_padding) {
  graph_.nodes.push_back(std::move(node));
  channel_padding_.push_back(channel_padding);
  return static_cast<int>(graph_.nodes.size()) - 1;
}

int NetworkBuilder::segment(const std::string& name, std::vector<int> shape, int padding_out, int padding_in,
                            Initial initial) {
  std::int64_t size = 1;
  for (const int extent : shape) size *= extent;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // kernels count them in 32 bits
  require(graph_.parameters + size <= kMost, ExitCode::usage, "the network has more than ", kMost,
          " parameters; choose a smaller --width, or a narrower --network");
  graph_.segments.push_back({.name = name,
                             .shape = std::move(shape),
                             .module = module_,
                             .block = block_,
                             .begin = graph_.parameters,
                             .size = size,
                             .padding_out = padding_out,
                             .padding_in = padding_in,
                             .initial = initial});
  graph_.parameters += size;
  return static_cast<int>(graph_.segments.size()) - 1;
}

void NetworkBuilder::begin_weights(Initial convolutions, Initial linear_bias) {
  convolutions_ = convolutions;
  linear_bias_ = linear_bias;
}

int NetworkBuilder::convolution(const std::string& name, int x, int channels, int kernel, int stride, Padding padding) {
  const Node& from = graph_.nodes[static_cast<std::size_t>(x)];
  const int padded = (channels + kChannels - 1) / kChannels * kChannels;
  Node node{.op = Op::convolution, .inputs = {x}, .c = padded, .kernel = kernel, .stride = stride, .pad = kernel / 2};
  if (padding == Padding::same) {
    const int all = std::max((from.h - 1) / stride * stride + kernel - from.h, 0);
    node.pad = all / 2;
    node.extra_pad = all % 2;
  }
  count_windows(node, from);
  node.weight =
      segment(name + ".weight", {padded, from.c, kernel, kernel}, padded - channels, channel_padding(x), convolutions_);
  return push(std::move(node), padded - channels);
}

int NetworkBuilder::batch_norm(const std::string& name, int x) {
  const Node& from = graph_.nodes[static_cast<std::size_t>(x)];
  Node node{.op = Op::batch_norm, .inputs = {x}, .c = from.c, .h = from.h, .w = from.w};
  node.weight = segment(name + ".weight", {from.c}, channel_padding(x), 0, Initial::one);
  node.bias = segment(name + ".bias", {from.c}, channel_padding(x), 0, Initial::zero);
  node.norm = static_cast<int>(graph_.norms.size());
  graph_.norms.push_back({name, from.c, graph_.statistics, channel_padding(x)});
  graph_.statistics += from.c;
  return push(std::move(node), channel_padding(x));
}

int NetworkBuilder::pointwise(Op op, const std::vector<int>& inputs) {
  const Node& from = graph_.nodes[static_cast<std::size_t>(inputs[0])];
  return push({.op = op, .inputs = inputs, .c = from.c, .h = from.h, .w = from.w}, channel_padding(inputs[0]));
}

int NetworkBuilder::relu(int x) { return pointwise(Op::relu, {x}); }

int NetworkBuilder::activation(int x) { return pointwise(activation_ == Activation::silu ? Op::silu : Op::relu, {x}); }

int NetworkBuilder::add(int a, int b) { return pointwise(Op::add, {a, b}); }

int NetworkBuilder::max_pool(int x, int kernel, int stride) {
  const Node& from = graph_.nodes[static_cast<std::size_t>(x)];
  Node node{.op = Op::max_pool, .inputs = {x}, .c = from.c, .kernel = kernel, .stride = stride, .pad = kernel / 2};
  count_windows(node, from);
  return push(std::move(node), channel_padding(x));
}

int NetworkBuilder::pool(int x) {
  return push({.op = Op::pool, .inputs = {x}, .c = graph_.nodes[static_cast<std::size_t>(x)].c}, channel_padding(x));
}

void NetworkBuilder::linear(const std::string& name, int x, int classes) {
  Node node{.op = Op::linear, .inputs = {x}, .c = classes};
  const int in = graph_.nodes[static_cast<std::size_t>(x)].c;
  node.weight = segment(name + ".weight", {classes, in}, 0, channel_padding(x), Initial::uniform);
  node.bias = segment(name + ".bias", {classes}, 0, 0, linear_bias_);
  push(std::move(node));
}

}  // namespace dat
