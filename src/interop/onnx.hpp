#pragma once

#include <string>

#include "dat/network.hpp"
#include "interop/safetensors.hpp"

namespace dat {

/// Writes the network as an ONNX model, as evaluations see it: with running statistics. Input "images" f32
/// [batch, c, s, s] in [0, 1], any batch; output "logits" f32 [batch, classes]. Each node of the graph is one operator
/// or two; weights are initialisers under PyTorch's names, `state.metadata` are the model's properties.
/// `state` is fitted to the graph. Operator set 17, IR version 8 (ONNX 1.12). Error(usage): a model above 2 GiB, which
/// the format does not allow. Error(io). Source: onnx/onnx, onnx.proto and Operators.md.
void write_onnx(const std::string& path, const Graph& graph, const StateDict& state);

}  // namespace dat
