#pragma once

#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/network.hpp"

namespace dat {

/// Parameters and running statistics of a checkpoint into a model. Error(checkpoint): another network.
void load_network(const Checkpoint& checkpoint, Model& model);
/// Adds them to a checkpoint: "param/NAME", "bn/NAME", in PyTorch's order.
void save_network(const Model& model, Checkpoint& checkpoint);

/// Adds an array of the model's parameters, or of their optimizer, as "GROUP/NAME" for each segment; and back.
/// `from`, `to` [parameters.size] on the device. Error(checkpoint).
void save_segments(const Model& model, const std::string& group, const float* from, Checkpoint& checkpoint);
void load_segments(const Checkpoint& checkpoint, const std::string& group, Model& model, float* to);

/// A hash of all parameters, as 32 hexadecimal digits.
[[nodiscard]] std::string weights_hash(const Model& model);

/// The running statistics, [2][graph.statistics] on the host: means, variances.
[[nodiscard]] std::vector<float> running_statistics(const Model& model);
void set_running_statistics(Model& model, const std::vector<float>& values);

}  // namespace dat
