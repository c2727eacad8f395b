#pragma once

#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/network.hpp"

namespace dat {

/// Copies parameters and running statistics of a checkpoint into a model. Error(checkpoint): the checkpoint is of
/// another network.
void load_network(const Checkpoint& checkpoint, Model& model);
/// Adds a model's parameters and running statistics to a checkpoint: "param/NAME", "bn/NAME", in PyTorch's order.
void save_network(const Model& model, Checkpoint& checkpoint);

/// Adds an array of the model's parameters, or of their optimizer, as "GROUP/NAME" for each segment; and back.
/// `from`, `to` [parameters.size] on the device. Error(checkpoint).
void save_segments(const Model& model, const std::string& group, const float* from, Checkpoint& checkpoint);
void load_segments(const Checkpoint& checkpoint, const std::string& group, Model& model, float* to);

/// Adds running statistics [2][graph.statistics], on the host, to a checkpoint as "GROUP/NAME.running_mean",
/// "GROUP/NAME.running_var"; and back.
void save_statistics(const Model& model, const std::string& group, const std::vector<float>& from,
                     Checkpoint& checkpoint);
[[nodiscard]] std::vector<float> load_statistics(const Checkpoint& checkpoint, const std::string& group,
                                                 const Model& model);

/// Group of a checkpoint with the averaged weights, and running statistics of their own where they have any.
inline const char* const kAverageGroup = "optim/average";
[[nodiscard]] bool has_average(const Checkpoint& checkpoint);
[[nodiscard]] bool has_average_statistics(const Checkpoint& checkpoint);
/// Returns whether `wanted` (auto: the averaged weights, where they are complete; raw; average) means the averaged
/// weights of a checkpoint. `rebuilt`: averaged weights need statistics of their own (bn=rebuild).
/// Error(checkpoint): the checkpoint has no averaged weights that can be used; `path` names it.
[[nodiscard]] bool takes_average(const Checkpoint& checkpoint, const std::string& wanted, bool rebuilt,
                                 const std::string& path);
/// Says where `wanted` (auto) means the raw weights though there are averaged ones; empty: it does not.
[[nodiscard]] std::string weights_notice(const Checkpoint& checkpoint, const std::string& wanted, bool rebuilt,
                                         const std::string& path);
/// Statistics of the averaged weights of a checkpoint, as below; the model's, where they have none of their own.
[[nodiscard]] std::vector<float> statistics_of_average(const Checkpoint& checkpoint, const Model& model);
/// Copies the averaged weights of a checkpoint, with their statistics, into a model that has its network.
void load_average(const Checkpoint& checkpoint, Model& model);

/// A hash of all parameters, as 32 hexadecimal digits; the second function takes the parameters in memory's order.
[[nodiscard]] std::string weights_hash(const Model& model);
[[nodiscard]] std::string weights_hash(const std::vector<float>& values);

/// The running statistics, [2][graph.statistics] on the host: means, variances.
[[nodiscard]] std::vector<float> running_statistics(const Model& model);
void set_running_statistics(Model& model, const std::vector<float>& values);

}  // namespace dat
