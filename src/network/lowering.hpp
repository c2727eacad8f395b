#pragma once

#include <cstdint>
#include <vector>

#include "dat/network.hpp"
#include "dat/planner.hpp"
#include "dat/program.hpp"

namespace dat {

/// A graph on its way to a program: what both programs share.
///
/// A program is a list of operations. Each takes one or more nodes of the graph and makes one value, which has the
/// number of the last of these nodes; value 0 are the images. First the operations are made, in the order in which they
/// run forward: each takes its nodes and plans the buffers of the forward pass. Then each plans the backward pass, from
/// the last to the first. Every operation is one instruction of the planner on either way.
class Lowering {
 public:
  using Buffer = Planner::Buffer;

  /// Error(usage): the network does not begin with one convolution of the images, or does not end with its only linear
  /// layer.
  Lowering(Model& model, const Graph& graph, int n, Planner& planner);

  Model& model;
  const Graph& graph;  ///< the model's, or that of the same network for images of another size
  Planner& planner;
  const int n;  ///< samples

  /// Takes the node with which the next operation begins: the first node that no operation has taken; -1: there is
  /// none. The next instruction of the planner begins.
  [[nodiscard]] int next_node();
  [[nodiscard]] int first_not_taken() const;  ///< the node that next_node() would take, which stays untaken
  /// Begins the next instruction in the backward pass, where the operations are known.
  void next_instruction() { ++instruction_; }

  [[nodiscard]] const Node& node(int k) const { return graph.nodes[static_cast<std::size_t>(k)]; }
  /// Fuses the only reader of `result` where it is a node of this kind: the operation takes that node, which makes
  /// `result` now.
  bool fuse(int& result, Op op);
  /// The other value that the only reader of `result`, an addition, reads, where it is there; else -1.
  [[nodiscard]] int other_addend(int result) const;
  /// Returns whether a node reads this value that no operation has taken so far.
  [[nodiscard]] bool read_later(int value) const;
  /// The nodes that read this value, in order.
  [[nodiscard]] const std::vector<int>& readers(int value) const { return readers_[static_cast<std::size_t>(value)]; }

  /// Layout of a value on this backend, for one sample.
  [[nodiscard]] Layout layout(int value) const;
  /// A value of all samples: its number of elements, and their type where it has been made.
  [[nodiscard]] std::int64_t elements(int value) const { return n * layout(value).elements(); }
  [[nodiscard]] DType type(int value) const { return at(value).type; }
  /// Buffers are alive from the first to the last instruction that calls one of these for them; -1 is no buffer.
  [[nodiscard]] Buffer fresh(std::int64_t elements, DType type = DType::f32);
  [[nodiscard]] Buffer make(int value, DType type = DType::f32);  ///< a fresh buffer, for this value
  void make_in(Buffer buffer, int value, DType type);             ///< takes a buffer that was just read, for this value
  /// The value's buffer; -1 for the images, which have none.
  [[nodiscard]] Buffer read(int value);
  void touch(Buffer buffer);

 private:
  struct Value {
    Buffer buffer = -1;
    DType type = DType::f32;
  };
  [[nodiscard]] const Value& at(int value) const { return values_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] int only_reader(int value, Op op) const;

  std::vector<std::vector<int>> readers_;  ///< readers of each value
  std::vector<bool> taken_;                ///< nodes that an operation has taken
  std::vector<Value> values_;
  int instruction_ = -1;
};

/// Specification of a convolution as far as both programs share it; the rest is that of a plain convolution for
/// training.
[[nodiscard]] ConvSpec conv_spec(const Lowering& lowering, const Node& node);

/// The places of the first `channels` channels of a model's batch norms.
[[nodiscard]] NormPlaces find_norms(const Model& model, std::int64_t channels);

/// Base of the operations of both programs.
class Operation {
 public:
  virtual ~Operation() = default;

  /// The first of the operation's nodes, which has its parameters.
  [[nodiscard]] const Node& node() const { return node_; }
  [[nodiscard]] int input() const { return node_.inputs[0]; }  ///< the (first) value that it reads
  [[nodiscard]] int result() const { return result_; }         ///< the value that it makes

 protected:
  using Buffer = Planner::Buffer;
  Operation(const Lowering& lowering, int node)
      : model_(lowering.model), n_(lowering.n), node_(lowering.node(node)), result_(node), planner_(lowering.planner) {}

  [[nodiscard]] Device device() const { return model_.backend.device(); }
  /// Present place of a buffer; null for -1.
  template <class T = float>
  [[nodiscard]] T* at(Buffer buffer) const {
    return planner_.at<T>(model_.backend.workspace(), buffer);
  }

  Model& model_;
  const int n_;
  const Node& node_;
  int result_;  ///< moved on by Lowering::fuse

 private:
  const Planner& planner_;
};

}  // namespace dat
