#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dat/checkpoint.hpp"
#include "dat/network.hpp"
#include "interop/safetensors.hpp"

namespace dat {

/// Weights and running statistics of a checkpoint, or of what read_weights() has read, under PyTorch's names; nothing
/// else of it. num_batches_tracked is counted where the checkpoint says it. `average`: the averaged weights, with their
/// statistics where they have any of their own.
[[nodiscard]] StateDict state_dict_of(const Checkpoint& checkpoint, bool average = false);

/// The checkpoint of a state_dict: the arrays "param/NAME" and "bn/NAME", and the number of batches.
[[nodiscard]] Checkpoint checkpoint_of(const StateDict& state);

/// `options` of the network that `make` makes, with the numbers of classes and of the images' channels that the tensors
/// say. Tensors that are not there, or of another form, leave the numbers as they are.
[[nodiscard]] NetworkOptions sizes_of(const std::function<Graph(const NetworkOptions&)>& make, const StateDict& state,
                                      NetworkOptions options);

/// Result of fitting tensors of another origin.
struct Fitting {
  std::string file, network;  ///< names of the file and the network in messages
  bool new_head = false;      ///< the last layer begins anew, whatever the file has of it
  std::uint64_t seed = 1;     ///< seed of the new weights
};

/// The tensors under the names and in the order of `graph`. The network may stand in the file below any prefix: the one
/// that most of its names follow counts. module. and _orig_mod. are passed over anywhere, model., net. and state_dict.
/// in front. Names are taken to mean the same where they differ in the ways in use: torchvision's downsample for
/// shortcut, the WideResNets' convShortcut, and fc, linear.fc, classifier, head and logits for the last layer. Copies
/// below other prefixes, or in the list `layers` of DAT's own code, are passed over if they are equal to the tensors,
/// and so are means and standard deviations of images (mu and sigma, mean and std, new_mean and new_std, wherever they
/// stand) if they are the graph's but for a unit of float32, and TRADES' sub_block1, which computes nothing.
/// Error(checkpoint): tensors that are missing, of another shape, or of no place: how many, and the first ten; where
/// the file has other means and standard deviations, the --normalize that they ask for.
[[nodiscard]] StateDict fitted(const Graph& graph, StateDict state, const Fitting& how);

/// The hash that `train` and `eval` print for these weights (weights_hash of a Model). The tensors must be fitted to
/// the graph.
[[nodiscard]] std::string weights_hash(const Graph& graph, const StateDict& state);

}  // namespace dat
