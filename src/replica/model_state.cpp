#include "replica/model_state.hpp"

#include <xxhash.h>

#include <cstdio>
#include <set>

namespace dat {

namespace {

[[nodiscard]] std::vector<std::int64_t> shape_of(const Segment& segment) {
  return {segment.shape.begin(), segment.shape.end()};
}

}  // namespace

void save_segments(const Model& model, const std::string& group, const float* from, Checkpoint& checkpoint) {
  for (const Segment& segment : model.parameters.segments)
    checkpoint.arrays.push_back({group + "/" + segment.name, shape_of(segment), model.download(segment, from)});
}

void load_segments(const Checkpoint& checkpoint, const std::string& group, Model& model, float* to) {
  for (const Segment& segment : model.parameters.segments)
    model.upload(segment, checkpoint.array(group + "/" + segment.name, shape_of(segment)).values, to);
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
  for (const Norm& norm : model.graph.norms) {
    const auto load = [&](const std::string& name, float* to) {
      const auto& values = checkpoint.array("bn/" + norm.name + name, {norm.channels}).values;
      model.backend.copy_to_device(to + norm.begin, values.data(), values.size() * sizeof(float));
    };
    load(".running_mean", model.running_mean);
    load(".running_var", model.running_variance);
  }
}

void save_network(const Model& model, Checkpoint& checkpoint) {
  save_segments(model, "param", model.parameters.values, checkpoint);
  const std::vector<float> statistics = running_statistics(model);
  for (const Norm& norm : model.graph.norms) {
    const auto slice = [&](std::int64_t begin) {
      const auto first = statistics.begin() + begin + norm.begin;
      return std::vector<float>(first, first + norm.channels);
    };
    checkpoint.arrays.push_back({"bn/" + norm.name + ".running_mean", {norm.channels}, slice(0)});
    checkpoint.arrays.push_back({"bn/" + norm.name + ".running_var", {norm.channels}, slice(model.graph.statistics)});
  }
}

std::string weights_hash(const Model& model) {
  std::vector<float> values(static_cast<std::size_t>(model.parameters.size));
  model.backend.copy_to_host(values.data(), model.parameters.values, values.size() * sizeof(float));
  const XXH128_hash_t hash = XXH3_128bits(values.data(), values.size() * sizeof(float));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
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
