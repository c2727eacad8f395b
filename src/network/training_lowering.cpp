#include "network/training_lowering.hpp"

#include <algorithm>
#include <iterator>

namespace dat {

int TrainingLowering::first_trained(const Graph& graph, int segments) {
  return static_cast<int>(std::ranges::find_if(graph.nodes, [&](const Node& node) { return node.weight >= segments; }) -
                          graph.nodes.begin());
}

TrainingLowering::Gradient TrainingLowering::arriving(int result) {
  const Gradient gradient = gradients_[static_cast<std::size_t>(result)];
  touch(gradient.buffer);
  return gradient;
}

void TrainingLowering::contribute(int value, Buffer part, bool owned) {
  Gradient& g = gradients_[static_cast<std::size_t>(value)];
  if (g.buffer == -1) {
    g = {part, owned};
    return;
  }
  touch(g.buffer);
  const Buffer into = g.owned ? g.buffer : owned ? part : fresh(elements(value), type(value));
  sums_.push_back({g.buffer, part, into, elements(value), type(value)});
  g = {into, true};
}

Lowering::Buffer TrainingLowering::take_part(int value) {
  const Buffer part = std::exchange(gradients_[static_cast<std::size_t>(value)], {}).buffer;
  touch(part);
  return part;
}

Lowering::Buffer TrainingLowering::take_owned(int value) {
  return gradients_[static_cast<std::size_t>(value)].owned ? take_part(value) : -1;
}

bool TrainingLowering::leave(const Addition& addition, int value) {
  const Node& next = node(first_not_taken());
  if (next.op != Op::batch_norm || next.inputs[0] != value) return false;
  left_ = addition;
  left_value_ = value;
  return true;
}

bool TrainingLowering::drop(TrainingOperation& by, std::initializer_list<int> sources) {
  int chain = 1;
  for (const int source : sources)
    if (source != -1) chain = std::max(chain, 1 + dropped_.at(static_cast<std::size_t>(source)).chain);
  if (!makes_again_ || chain > kLongestChain) return false;
  Dropped& value = dropped_[static_cast<std::size_t>(by.result())];
  value.by = &by;
  std::ranges::copy_if(sources, std::back_inserter(value.sources), [](int k) { return k != -1; });
  value.chain = chain;
  return true;
}

Lowering::Buffer TrainingLowering::again(int value, int segment) {
  const Buffer buffer = source(value);
  want(value, segment);
  return buffer;
}

Lowering::Buffer TrainingLowering::source(int value) {
  Dropped& it = dropped_[static_cast<std::size_t>(value)];
  if (it.by == nullptr) return read(value);
  if (it.buffer == -1) {
    it.buffer = fresh(elements(value), type(value));
    it.by->plan_again(*this, it.buffer);
    it.again = std::make_shared<Again>(Again{it.by, {}});
    again_.push_back(it.again);
  }
  touch(it.buffer);
  return it.buffer;
}

/// Sources of a dropped value are needed for the same gradients.
void TrainingLowering::want(int value, int segment) {
  const Dropped& it = dropped_.at(static_cast<std::size_t>(value));
  if (it.by == nullptr) return;
  it.again->segments.push_back(segment);
  for (const int source : it.sources) want(source, segment);
}

std::optional<TrainingLowering::Addition> TrainingLowering::take_addition(int value) {
  if (!left_ || left_value_ != value) return {};  // or another norm has it
  touch(left_->a);
  touch(left_->b);
  return std::exchange(left_, {});
}

}  // namespace dat
