#include "network/lowering.hpp"

#include <algorithm>

namespace dat {

Lowering::Lowering(Model& of, const Graph& described, int samples, Planner& buffers)
    : model(of),
      graph(described),
      planner(buffers),
      n(samples),
      readers_(described.consumers()),
      taken_(described.nodes.size(), false),
      values_(described.nodes.size()) {
  const auto read_once_by = [&](int value, Op op) { return only_reader(value, op) != -1; };
  require(read_once_by(0, Op::convolution) || (read_once_by(0, Op::normalize) && read_once_by(1, Op::convolution)),
          ExitCode::usage, "a network must begin with one convolution of the image");
  require(std::ranges::find(described.nodes, Op::linear, &Node::op) == described.nodes.end() - 1, ExitCode::usage,
          "a network must end with its only linear layer, which makes the logits");
  taken_[0] = true;
}

ConvSpec conv_spec(const Lowering& lowering, const Node& node) {
  const Layout in = lowering.layout(node.inputs[0]);
  return {.n = lowering.n,
          .c_in = in.c,
          .h = in.h,
          .w = in.w,
          .c_out = node.c,
          .kernel = node.kernel,
          .stride = node.stride,
          .pad = node.pad,
          .extra_pad = node.extra_pad,
          .image = lowering.node(node.inputs[0]).makes_images()};
}

NormPlaces find_norms(const Model& model, std::int64_t channels) {
  std::vector<std::int32_t> places(2 * static_cast<std::size_t>(channels));
  for (const Node& node : model.graph.nodes) {
    if (node.op != Op::batch_norm) continue;
    const std::int64_t first = model.graph.norms[static_cast<std::size_t>(node.norm)].begin;
    if (first >= channels) continue;
    const auto begin = [&](int segment) {
      return static_cast<std::int32_t>(model.parameters.segments[static_cast<std::size_t>(segment)].begin);
    };
    for (std::int32_t c = 0; c < node.c; ++c) {
      places[static_cast<std::size_t>(first + c)] = begin(node.weight) + c;
      places[static_cast<std::size_t>(channels + first + c)] = begin(node.bias) + c;
    }
  }
  auto* const gamma = model.backend.allocate_array<std::int32_t>(std::ssize(places), "folded batch norm");
  model.backend.copy_to_device(gamma, places.data(), places.size() * sizeof(std::int32_t));
  return {gamma, gamma + channels};
}

Layout Lowering::layout(int value) const {
  const Node& v = node(value);
  const Backend& backend = model.backend;
  return v.makes_images() ? backend.image_layout(v.c, v.h, v.w) : backend.activation_layout(v.c, v.h, v.w);
}

int Lowering::first_not_taken() const {
  const auto next = std::ranges::find(taken_, false);
  return next == taken_.end() ? -1 : static_cast<int>(next - taken_.begin());
}

int Lowering::next_node() {
  const int next = first_not_taken();
  if (next == -1) return -1;
  taken_[static_cast<std::size_t>(next)] = true;
  next_instruction();
  return next;
}

int Lowering::only_reader(int value, Op op) const {
  const auto& all = readers(value);
  return all.size() == 1 && node(all[0]).op == op ? all[0] : -1;
}

bool Lowering::fuse(int& result, Op op) {
  const int next = only_reader(result, op);
  if (next == -1) return false;
  taken_[static_cast<std::size_t>(next)] = true;
  result = next;
  return true;
}

int Lowering::other_addend(int result) const {
  const int add = only_reader(result, Op::add);
  if (add == -1) return -1;
  const auto& addends = node(add).inputs;
  const int other = addends[0] == result ? addends[1] : addends[0];
  return at(other).buffer != -1 ? other : -1;
}

bool Lowering::read_later(int value) const {
  return std::ranges::any_of(readers(value), [&](int k) { return !taken_[static_cast<std::size_t>(k)]; });
}

Lowering::Buffer Lowering::fresh(std::int64_t elements, DType type) {
  const Buffer buffer = planner.add(static_cast<std::size_t>(elements) * size_of(type));
  touch(buffer);
  return buffer;
}

Lowering::Buffer Lowering::make(int value, DType type) {
  const Buffer buffer = fresh(elements(value), type);
  make_in(buffer, value, type);
  return buffer;
}

void Lowering::make_in(Buffer buffer, int value, DType type) {
  values_[static_cast<std::size_t>(value)] = {buffer, type};
}

Lowering::Buffer Lowering::read(int value) {
  touch(at(value).buffer);
  return at(value).buffer;
}

void Lowering::touch(Buffer buffer) {
  if (buffer != -1) planner.touch(buffer, instruction_);
}

}  // namespace dat
