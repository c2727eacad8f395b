#include "network/norm_places.hpp"

namespace dat {

NormPlaces find_norms(const Model& model, std::int64_t channels) {
  std::vector<std::int32_t> places(2 * static_cast<std::size_t>(channels));
  for (const Node& node : model.graph.nodes) {
    if (node.op != Op::batch_norm) continue;
    const std::int64_t first = model.graph.norms[static_cast<std::size_t>(node.norm)].begin;
    const auto begin = [&](int segment) {
      return static_cast<std::int32_t>(model.parameters.segments[static_cast<std::size_t>(segment)].begin);
    };
    for (std::int32_t c = 0; c < node.c && first + c < channels; ++c) {
      places[static_cast<std::size_t>(first + c)] = begin(node.weight) + c;
      places[static_cast<std::size_t>(channels + first + c)] = begin(node.bias) + c;
    }
  }
  const std::size_t bytes = places.size() * sizeof(std::int32_t);
  auto* const gamma = static_cast<std::int32_t*>(model.backend.allocate(bytes, "folded batch norm"));
  model.backend.copy_to_device(gamma, places.data(), bytes);
  return {gamma, gamma + channels};
}

}  // namespace dat
