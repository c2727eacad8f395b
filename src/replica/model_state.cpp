#include "replica/model_state.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

namespace dat {

namespace {

[[nodiscard]] std::vector<std::int64_t> shape_of(const Segment& segment) {
  const std::vector<int> shape = segment.file_shape();
  return {shape.begin(), shape.end()};
}

[[nodiscard]] bool has_averaged(const Checkpoint& checkpoint, const char* ending) {
  return std::ranges::any_of(checkpoint.arrays, [&](const Checkpoint::Array& array) {
    return array.name.starts_with(std::string(kAverageGroup) + "/") && array.name.ends_with(ending);
  });
}

/// The values of an array of the network. ReLUs may hide what is not a number from everything after them.
[[nodiscard]] const std::vector<float>& finite(const Checkpoint& checkpoint, const std::string& name,
                                               const std::vector<std::int64_t>& shape) {
  const std::vector<float>& values = checkpoint.array(name, shape).values;
  require(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }), ExitCode::checkpoint,
          "the checkpoint's array ", name,
          " has values that are not finite; nothing can be computed with it: take another checkpoint");
  return values;
}

}  // namespace

void save_segments(const Model& model, const std::string& group, const float* from, Checkpoint& checkpoint) {
  for (const Segment& segment : model.parameters.segments)
    checkpoint.arrays.push_back({group + "/" + segment.name, shape_of(segment), model.download(segment, from)});
}

void load_segments(const Checkpoint& checkpoint, const std::string& group, Model& model, float* to) {
  for (const Segment& segment : model.parameters.segments)
    model.upload(segment, finite(checkpoint, group + "/" + segment.name, shape_of(segment)), to);
}

void load_network(const Checkpoint& checkpoint, Model& model) {
  std::set<std::string> known;
  for (const Segment& segment : model.parameters.segments) known.insert("param/" + segment.name);
  for (const Norm& norm : model.graph.norms)
    for (const char* name : {".running_mean", ".running_var"}) known.insert("bn/" + norm.name + name);
  for (const Checkpoint::Array& array : checkpoint.arrays)
    require(array.name.starts_with("optim/") || array.name.starts_with("attack/") || array.name.starts_with("codec/") ||
                known.contains(array.name),
            ExitCode::checkpoint, "the checkpoint's array ", array.name,
            " is none of the network's; it belongs to another network");
  load_segments(checkpoint, "param", model, model.parameters.values);
  set_running_statistics(model, load_statistics(checkpoint, "bn", model));
}

void save_network(const Model& model, Checkpoint& checkpoint) {
  save_segments(model, "param", model.parameters.values, checkpoint);
  save_statistics(model, "bn", running_statistics(model), checkpoint);
}

void save_statistics(const Model& model, const std::string& group, const std::vector<float>& from,
                     Checkpoint& checkpoint) {
  for (const Norm& norm : model.graph.norms) {
    const auto slice = [&](std::int64_t begin) {
      const auto first = from.begin() + begin + norm.begin;
      return std::vector<float>(first, first + norm.file_channels());
    };
    const std::string name = group + "/" + norm.name;
    checkpoint.arrays.push_back({name + ".running_mean", {norm.file_channels()}, slice(0)});
    checkpoint.arrays.push_back({name + ".running_var", {norm.file_channels()}, slice(model.graph.statistics)});
  }
}

std::vector<float> load_statistics(const Checkpoint& checkpoint, const std::string& group, const Model& model) {
  std::vector<float> all(2 * static_cast<std::size_t>(model.graph.statistics));
  for (const Norm& norm : model.graph.norms) {
    const auto load = [&](const char* name, std::int64_t begin) {
      const auto& values = finite(checkpoint, group + "/" + norm.name + name, {norm.file_channels()});
      std::ranges::copy(values, all.begin() + begin + norm.begin);
    };
    load(".running_mean", 0);
    load(".running_var", model.graph.statistics);
  }
  return all;
}

bool has_average(const Checkpoint& checkpoint) { return has_averaged(checkpoint, ".weight"); }

bool has_average_statistics(const Checkpoint& checkpoint) { return has_averaged(checkpoint, ".running_mean"); }

bool takes_average(const Checkpoint& checkpoint, const std::string& wanted, bool rebuilt, const std::string& path) {
  const bool complete = !rebuilt || has_average_statistics(checkpoint);
  require(wanted != "average" || has_average(checkpoint), ExitCode::checkpoint, path,
          " has no averaged weights, because it was trained without --average; take --weights raw");
  require(wanted != "average" || complete, ExitCode::checkpoint, path,
          " was written in haste, without the batch statistics of the averaged weights; take another checkpoint of the "
          "run, or --weights raw");
  return wanted != "raw" && has_average(checkpoint) && complete;
}

std::string weights_notice(const Checkpoint& checkpoint, const std::string& wanted, bool rebuilt,
                           const std::string& path) {
  if (wanted != "auto" || !has_average(checkpoint) || takes_average(checkpoint, wanted, rebuilt, path)) return "";
  return path +
         " was written when a signal came, without the batch statistics of the averaged weights: the raw ones are "
         "taken; let the run go on to its next checkpoint for the others";
}

std::vector<float> statistics_of_average(const Checkpoint& checkpoint, const Model& model) {
  return has_average_statistics(checkpoint) ? load_statistics(checkpoint, kAverageGroup, model)
                                            : running_statistics(model);
}

void load_average(const Checkpoint& checkpoint, Model& model) {
  load_segments(checkpoint, kAverageGroup, model, model.parameters.values);
  set_running_statistics(model, statistics_of_average(checkpoint, model));
}

std::string weights_hash(const Model& model) {
  std::vector<float> values(static_cast<std::size_t>(model.parameters.size));
  model.backend.copy_to_host(values.data(), model.parameters.values, values.size() * sizeof(float));
  return weights_hash(values);
}

std::string weights_hash(const std::vector<float>& values) {
  const XXH128_hash_t hash = XXH3_128bits(values.data(), std::span(values).size_bytes());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::vector<float> running_statistics(const Model& model) {
  const auto count = static_cast<std::size_t>(model.graph.statistics);
  std::vector<float> values(2 * count);
  model.backend.copy_to_host(values.data(), model.running_mean, count * sizeof(float));
  model.backend.copy_to_host(values.data() + count, model.running_variance, count * sizeof(float));
  return values;
}

void set_running_statistics(Model& model, const std::vector<float>& values) {
  const auto count = static_cast<std::size_t>(model.graph.statistics);
  model.backend.copy_to_device(model.running_mean, values.data(), count * sizeof(float));
  model.backend.copy_to_device(model.running_variance, values.data() + count, count * sizeof(float));
  ++model.parameters.version;
}

}  // namespace dat
