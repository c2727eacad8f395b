#include <algorithm>
#include <cmath>
#include <utility>

#include "dat/network.hpp"
#include "dat/random.hpp"

namespace dat {

Model::Model(Backend& where, Graph description, Granularity granularity, Freezing may_freeze)
    : backend(where), graph(std::move(description)), freezing(may_freeze) {
  freeze(true);
  parameters.segments = graph.segments;
  parameters.size = graph.parameters;
  assign_layers(parameters, granularity);
  parameters.values = backend.allocate_floats(parameters.size, "weights");
  parameters.gradients = backend.allocate_floats(parameters.size, "gradients");
  running_mean = backend.allocate_floats(graph.statistics, "running statistics");
  running_variance = backend.allocate_floats(graph.statistics, "running statistics");
}

void Model::freeze(bool on) {
  if (const int now = on ? freezing.segments : 0; now != std::exchange(frozen, now)) ++parameters.version;
}

std::vector<float> initial_values(const std::vector<Segment>& segments, std::size_t k, std::uint64_t seed) {
  const Segment& segment = segments[k];
  std::vector<float> values(static_cast<std::size_t>(segment.file_size()), 0.0F);
  // A bias is drawn with the fan-in of the weights before it; a vector after a vector is a batch norm's beta.
  const bool vector = segment.shape.size() == 1;
  const Segment* weights = vector ? (k > 0 ? &segments[k - 1] : nullptr) : &segment;
  const bool linear_bias = vector && weights != nullptr && weights->shape.size() == 2;
  if (!vector || linear_bias) {
    const std::int64_t fan_in = weights->file_size() / weights->file_shape()[0];
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Philox4 words = random_words(seed, Purpose::initial_weights, 0, k, static_cast<std::uint32_t>(i / 4));
      values[i] = (2.0F * uniform(words.v[i % 4]) - 1.0F) * bound;
    }
  } else if (segment.name.ends_with(".weight")) {
    values.assign(values.size(), 1.0F);
  }
  return values;
}

void Model::initialize(std::uint64_t seed) {
  for (std::size_t k = 0; k < parameters.segments.size(); ++k)
    upload(parameters.segments[k], initial_values(parameters.segments, k, seed), parameters.values);
  const auto bytes = static_cast<std::size_t>(graph.statistics) * sizeof(float);
  const std::vector<float> mean(static_cast<std::size_t>(graph.statistics), 0.0F);
  std::vector<float> variance(mean.size(), 0.0F);
  for (const Norm& norm : graph.norms) std::fill_n(variance.begin() + norm.begin, norm.file_channels(), 1.0F);
  backend.copy_to_device(running_mean, mean.data(), bytes);
  backend.copy_to_device(running_variance, variance.data(), bytes);
  batches_tracked = 0;
}

std::vector<float> Model::download(const Segment& segment, const float* from) const {
  std::vector<float> memory(static_cast<std::size_t>(segment.size)),
      file(static_cast<std::size_t>(segment.file_size()));
  backend.copy_to_host(memory.data(), from + segment.begin, memory.size() * sizeof(float));
  to_file_order(segment, memory.data(), file.data());
  return file;
}

void Model::upload(const Segment& segment, const std::vector<float>& values, float* to) {
  std::vector<float> memory(static_cast<std::size_t>(segment.size));
  to_memory_order(segment, values.data(), memory.data());
  backend.copy_to_device(to + segment.begin, memory.data(), memory.size() * sizeof(float));
  ++parameters.version;
}

}  // namespace dat
