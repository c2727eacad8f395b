#pragma once

#include <string>

#include "dat/network.hpp"
#include "interop/safetensors.hpp"

namespace dat {

/// Writes a folder that PyTorch loads a network from: model.safetensors; config.json, what the metadata of `state` say,
/// and the nodes of the graph; model.py, a class for every network, which is built from the nodes, reads the weights
/// without another package than torch, and loads them strictly. Makes the folder. Error(io).
void write_pytorch_folder(const std::string& folder, const Graph& graph, const StateDict& state,
                          const std::string& architecture);

}  // namespace dat
