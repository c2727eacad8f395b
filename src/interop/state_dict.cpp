#include "interop/state_dict.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "dat/error.hpp"
#include "replica/model_state.hpp"

namespace dat {

namespace {

constexpr const char* kCounter = ".num_batches_tracked";

[[nodiscard]] bool is_statistic(const std::string& name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var");
}

[[nodiscard]] std::string text_of_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

/// The name that all public names of the same tensor have in common.
[[nodiscard]] std::string canonical(std::string_view full) {
  constexpr std::array<std::string_view, 5> kWrappers = {"module.", "model.", "net.", "state_dict.", "_orig_mod."};
  constexpr std::array<std::string_view, 5> kHeads = {"linear.fc.", "fc.", "classifier.", "head.", "logits."};
  const auto strip = [&](std::string_view prefix) {
    const bool there = full.starts_with(prefix);
    if (there) full.remove_prefix(prefix.size());
    return there;
  };
  while (std::any_of(kWrappers.begin(), kWrappers.end(), strip)) {
  }
  const bool head = std::any_of(kHeads.begin(), kHeads.end(), strip);
  std::string name = (head ? "linear." : "") + std::string(full);
  const auto replace = [&](const std::string& word, const std::string& by) {
    if (const std::size_t at = name.find(word); at != std::string::npos) name.replace(at, word.size(), by);
  };
  replace(".downsample.", ".shortcut.");
  replace(".convShortcut.", ".shortcut.0.");
  return name;
}

/// The last part of a name: "weight".
[[nodiscard]] std::string leaf(const std::string& name) { return name.substr(name.rfind('.') + 1); }

[[nodiscard]] bool same_tensor(const Checkpoint::Array& a, const Checkpoint::Array& b) {
  const auto same_bits = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  return a.shape == b.shape &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), same_bits);
}

/// The tensors that a network has, without values, and for each whether it is of its last layer.
struct Wanted {
  std::vector<Checkpoint::Array> tensors;
  std::vector<bool> head;
};

[[nodiscard]] Wanted wanted_by(const Graph& graph) {
  Wanted wanted;
  const Node& last = graph.nodes.back();
  for (std::size_t k = 0; k < graph.segments.size(); ++k) {
    const Segment& segment = graph.segments[k];
    const std::vector<int> shape = segment.file_shape();
    wanted.tensors.push_back({segment.name, {shape.begin(), shape.end()}, {}});
    wanted.head.push_back(static_cast<int>(k) == last.weight || static_cast<int>(k) == last.bias);
  }
  for (const Norm& norm : graph.norms)
    for (const char* statistic : {".running_mean", ".running_var"}) {
      wanted.tensors.push_back({norm.name + statistic, {norm.file_channels()}, {}});
      wanted.head.push_back(false);
    }
  return wanted;
}

[[nodiscard]] std::int64_t batches_of(const StateDict& state) {
  std::int64_t batches = 0;
  for (const auto& [name, count] : state.counters)
    if (name.ends_with(kCounter)) batches = std::max(batches, count);
  return batches;
}

/// What public models call the numbers by which they normalize images; null: another name.
[[nodiscard]] const std::vector<float>* normalization_called(const std::string& name, const Normalization& own) {
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
  };
  if (is({"mu", "mean", "normalize.mean"})) return &own.mean;
  return is({"sigma", "std", "normalize.std"}) ? &own.deviation : nullptr;
}

/// The shape of the tensor that means the same as `name`; empty: there is none.
[[nodiscard]] std::vector<std::int64_t> shape_in(const StateDict& state, const std::string& name) {
  for (const Checkpoint::Array& tensor : state.tensors)
    if (canonical(tensor.name) == canonical(name)) return tensor.shape;
  return {};
}

}  // namespace

StateDict state_dict_of(const Checkpoint& checkpoint, bool average) {
  StateDict state;
  const auto batches = checkpoint.integers.find("batches_tracked");
  for (const Checkpoint::Array& array : checkpoint.arrays) {
    const bool parameter = array.name.starts_with("param/"), statistic = array.name.starts_with("bn/");
    if (!parameter && !statistic) continue;
    const std::string name = array.name.substr(array.name.find('/') + 1);
    const std::string averaged = std::string(kAverageGroup) + "/" + name;
    const auto found = std::find_if(checkpoint.arrays.begin(), checkpoint.arrays.end(),
                                    [&](const Checkpoint::Array& one) { return average && one.name == averaged; });
    const Checkpoint::Array& taken = found == checkpoint.arrays.end() ? array : *found;
    state.tensors.push_back({name, taken.shape, taken.values});
    if (name.ends_with(".running_mean") && batches != checkpoint.integers.end())
      state.counters[name.substr(0, name.rfind('.')) + kCounter] = batches->second;
  }
  return state;
}

Checkpoint checkpoint_of(const StateDict& state) {
  Checkpoint checkpoint;
  for (const Checkpoint::Array& tensor : state.tensors)
    checkpoint.arrays.push_back(
        {(is_statistic(tensor.name) ? "bn/" : "param/") + tensor.name, tensor.shape, tensor.values});
  checkpoint.integers["batches_tracked"] = batches_of(state);
  return checkpoint;
}

NetworkOptions sizes_of(const std::function<Graph(const NetworkOptions&)>& make, const StateDict& state,
                        NetworkOptions options) {
  NetworkOptions any = options;
  any.normalization = {};  // whose channels are not known to be the images'
  const Graph like = make(any);
  const auto name_of = [&](int segment) { return like.segments[static_cast<std::size_t>(segment)].name; };
  const auto head = shape_in(state, name_of(like.nodes.back().weight));
  if (head.size() == 2 && head[0] >= 2 && head[0] <= 256) options.classes = static_cast<int>(head[0]);
  const auto first =
      std::find_if(like.nodes.begin(), like.nodes.end(), [](const Node& node) { return node.op == Op::convolution; });
  const auto images = shape_in(state, name_of(first->weight));
  if (images.size() == 4 && images[1] >= 1 && images[1] <= 4) options.channels = static_cast<int>(images[1]);
  return options;
}

StateDict fitted(const Graph& graph, StateDict state, const Fitting& how) {
  Wanted wanted = wanted_by(graph);
  std::map<std::string, std::size_t> places;
  for (std::size_t k = 0; k < wanted.tensors.size(); ++k) places[canonical(wanted.tensors[k].name)] = k;

  std::vector<std::string> differences;
  std::vector<std::optional<std::string>> found(wanted.tensors.size());  // the name in the file
  std::vector<Checkpoint::Array> strange;
  for (Checkpoint::Array& tensor : state.tensors) {
    const auto place = places.find(canonical(tensor.name));
    if (place == places.end()) {
      strange.push_back(std::move(tensor));
      continue;
    }
    Checkpoint::Array& want = wanted.tensors[place->second];
    std::optional<std::string>& taken = found[place->second];
    if (how.new_head && wanted.head[place->second]) continue;
    if (taken) {
      if (!same_tensor(tensor, want))
        differences.push_back(tensor.name + " and " + *taken + " are different tensors for " + want.name);
      continue;
    }
    taken = tensor.name;
    if (tensor.shape == want.shape)
      want.values = std::move(tensor.values);
    else
      differences.push_back(tensor.name + " is " + text_of_shape(tensor.shape) + ", not " + text_of_shape(want.shape));
  }
  for (const Checkpoint::Array& tensor : strange) {
    const bool copy = canonical(tensor.name).starts_with("layers.") &&
                      std::any_of(wanted.tensors.begin(), wanted.tensors.end(), [&](const Checkpoint::Array& want) {
                        return leaf(want.name) == leaf(tensor.name) && same_tensor(tensor, want);
                      });
    const std::vector<float>* numbers = normalization_called(canonical(tensor.name), graph.normalization);
    const bool unused = canonical(tensor.name).starts_with("sub_block1.");
    if (copy || unused || (numbers != nullptr && tensor.values == *numbers)) continue;
    differences.push_back(tensor.name + " " + text_of_shape(tensor.shape) +
                          (numbers == nullptr ? " has no place in it" : " asks for another --normalize"));
  }
  for (std::size_t k = 0; k < wanted.tensors.size(); ++k) {
    Checkpoint::Array& want = wanted.tensors[k];
    if (how.new_head && wanted.head[k])
      want.values = initial_values(graph.segments, k, how.seed);
    else if (!found[k])
      differences.push_back(want.name + " " + text_of_shape(want.shape) + " is missing");
  }
  constexpr std::size_t kNamed = 10;
  std::string all;
  for (std::size_t k = 0; k < std::min(kNamed, differences.size()); ++k) all += (k > 0 ? "; " : "") + differences[k];
  if (differences.size() > kNamed) all += "; and " + std::to_string(differences.size() - kNamed) + " more";
  require(differences.empty(), ExitCode::checkpoint, how.file, ": does not fit ", how.network, ", in ",
          differences.size(), differences.size() == 1 ? " tensor: " : " tensors: ", all);

  StateDict result{.tensors = std::move(wanted.tensors), .counters = {}, .metadata = std::move(state.metadata)};
  for (const Norm& norm : graph.norms) result.counters[norm.name + kCounter] = batches_of(state);
  return result;
}

std::string weights_hash(const Graph& graph, const StateDict& state) {
  std::vector<float> memory(static_cast<std::size_t>(graph.parameters));
  for (std::size_t k = 0; k < graph.segments.size(); ++k)
    to_memory_order(graph.segments[k], state.tensors[k].values.data(), memory.data() + graph.segments[k].begin);
  return weights_hash(memory);
}

}  // namespace dat
