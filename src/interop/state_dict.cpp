#include "interop/state_dict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint_file.hpp"
#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "replica/model_state.hpp"

namespace dat {

namespace {

const std::string kCounter = std::string(".") + kBatchCounter;

/// The parts of a name, without those that wrappers put anywhere (DataParallel, torch.compile) or in front.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (bool more = true; more;) {
    const std::size_t dot = name.find('.');
    more = dot != std::string_view::npos;
    const std::string_view part = name.substr(0, dot);
    name.remove_prefix(more ? dot + 1 : name.size());
    const bool in_front = part == "model" || part == "net" || part == "state_dict";
    if (part != "module" && part != "_orig_mod" && !(in_front && parts.empty() && more)) parts.push_back(part);
  }
  return parts;
}

[[nodiscard]] std::string joined(std::span<const std::string_view> parts) {
  return fmt::format("{}", fmt::join(parts, "."));
}

/// The name that all public names of the same tensor have in common, of the parts from `begin` on.
[[nodiscard]] std::string canonical(const std::vector<std::string_view>& parts, std::size_t begin) {
  constexpr std::array<std::string_view, 5> kHeads = {"linear.fc.", "fc.", "classifier.", "head.", "logits."};
  std::string name = joined(std::span(parts).subspan(begin));
  for (const std::string_view head : kHeads)
    if (name.starts_with(head)) {
      name.replace(0, head.size(), "linear.");
      break;
    }
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

/// The tensors that a network has, without values: its segments, then statistics.
struct Wanted {
  std::vector<Checkpoint::Array> tensors;
  Node last;
  /// Whether a tensor is of the last layer.
  [[nodiscard]] bool head(std::size_t k) const {
    return static_cast<int>(k) == last.weight || static_cast<int>(k) == last.bias;
  }
};

[[nodiscard]] Wanted wanted_by(const Graph& graph) {
  Wanted wanted{.tensors = {}, .last = graph.nodes.back()};
  for (const Segment& segment : graph.segments) {
    const std::vector<int> shape = segment.file_shape();
    wanted.tensors.push_back({segment.name, {shape.begin(), shape.end()}, {}});
  }
  for (const Norm& norm : graph.norms)
    for (const char* statistic : {".running_mean", ".running_var"})
      wanted.tensors.push_back({norm.name + statistic, {norm.file_channels()}, {}});
  return wanted;
}

[[nodiscard]] std::int64_t batches_of(const StateDict& state) {
  std::int64_t batches{};
  for (const auto& [name, count] : state.counters)
    if (name.ends_with(kCounter)) batches = std::max(batches, count);
  return batches;
}

/// Constants by which public models of this name normalize images, wherever they stand; null: another name.
[[nodiscard]] const std::vector<float>* normalization_called(const std::string& name, const Normalization& own) {
  const std::string last = leaf(name);
  if (last == "mu" || last == "mean" || last == "new_mean") return &own.mean;
  return last == "sigma" || last == "std" || last == "new_std" ? &own.deviation : nullptr;
}

/// Returns whether numbers are equal but for the last unit of float32, which a quotient may round to either side.
[[nodiscard]] bool nearly_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) { return std::nextafter(x, y) == y; });
}

/// The numbers as --normalize takes them; empty: they are none that it takes, or of images that are not in [0, 1].
[[nodiscard]] std::string text_of(const Normalization& said) {
  constexpr std::size_t kMostChannels = 4;
  const std::size_t channels = said.mean.size();
  if (channels > kMostChannels || said.deviation.size() != channels) return "";
  if (std::ranges::any_of(said.mean, [](float mean) { return !(mean >= 0 && mean <= 1); })) return "";
  std::string text;
  for (const std::vector<float>* numbers : {&said.mean, &said.deviation})
    for (const float number : *numbers) text += fmt::format("{}{}", text.empty() ? "" : ",", number);
  return text;
}

/// Option that fits the means and standard deviations in a file, by the names in front of theirs; empty: several
/// options, or none.
[[nodiscard]] std::string hint_of(const std::map<std::string, Normalization>& said) {
  std::set<std::string> texts;
  for (const auto& [name, numbers] : said) texts.insert(text_of(numbers));
  if (texts.size() != 1 || texts.begin()->empty()) return "";
  return "; to take the numbers of the file, give --normalize " + *texts.begin();
}

[[nodiscard]] std::string different_for(const Checkpoint::Array& want, const std::string& name,
                                        const std::string& other) {
  return name + " and " + other + " are different tensors for " + want.name;
}

/// Places of a file's tensors in a network. The network may stand in the file below a prefix, and more than once: the
/// prefix that most of its names follow is the network's. Its last layer may stand below none instead, beside the
/// others, which are a part of their own there ("backbone.").
struct Places {
  std::vector<std::optional<std::size_t>> place;  ///< place of each tensor of the file
  /// Place of a tensor without one by the end of its name: it may be a copy.
  std::vector<std::optional<std::size_t>> end;
  std::vector<bool> whole;          ///< true: this end stands below a prefix with as much of the network
  std::vector<std::string> inside;  ///< canonical name within the network of a tensor that has no place
};

[[nodiscard]] Places places_in(const Wanted& network, const StateDict& state) {
  const std::vector<Checkpoint::Array>& wanted = network.tensors;
  std::map<std::string, std::size_t> known;
  std::size_t most_parts{};
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const auto parts = parts_of(wanted[k].name);
    known[canonical(parts, 0)] = k;
    most_parts = std::max(most_parts, parts.size() + 1);  // "linear.fc.weight"
  }
  struct End {
    std::string prefix;
    std::size_t place;
  };
  std::vector<std::vector<End>> ends;  // ends of each tensor, the longest first
  std::map<std::string, std::set<std::size_t>> below;
  for (const Checkpoint::Array& tensor : state.tensors) {
    const auto parts = parts_of(tensor.name);
    std::vector<End>& all = ends.emplace_back();
    for (std::size_t at = parts.size() - std::min(parts.size(), most_parts); at < parts.size(); ++at) {
      const auto found = known.find(canonical(parts, at));
      if (found == known.end()) continue;
      all.push_back({joined(std::span(parts).first(at)), found->second});
      below[all.back().prefix].insert(found->second);
    }
  }
  const auto own = std::ranges::max_element(below, [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();  // the first one in the alphabet among equals
  });
  Places places;
  for (std::size_t k = 0; k < ends.size(); ++k) {
    const auto named = std::ranges::find_if(ends[k], [&](const End& end) {
      return end.prefix == own->first || (end.prefix.empty() && network.head(end.place));
    });
    const bool placed = named != ends[k].end();
    places.place.push_back(placed ? std::optional(named->place) : std::nullopt);
    const bool ended = !placed && !ends[k].empty();
    places.end.push_back(ended ? std::optional(ends[k].front().place) : std::nullopt);
    places.whole.push_back(ended && below[ends[k].front().prefix].size() == own->second.size());
    const std::string name = canonical(parts_of(state.tensors[k].name), 0);
    const std::string prefix = own == below.end() || own->first.empty() ? "" : own->first + ".";
    places.inside.push_back(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
  }
  return places;
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
    const auto found = std::ranges::find_if(
        checkpoint.arrays, [&](const Checkpoint::Array& one) { return average && one.name == averaged; });
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
  any.normalization = {};  // the channels may not be the images'
  const Graph like = make(any);
  const Places places = places_in(wanted_by(like), state);
  const auto shape_of = [&](int segment) -> std::vector<std::int64_t> {
    const auto found = std::ranges::find(places.place, static_cast<std::size_t>(segment));
    if (found == places.place.end()) return {};
    return state.tensors[static_cast<std::size_t>(found - places.place.begin())].shape;
  };
  const auto head = shape_of(like.nodes.back().weight);
  if (head.size() == 2 && head[0] >= 2 && head[0] <= kMostClasses) options.classes = static_cast<int>(head[0]);
  const auto first = std::ranges::find_if(like.nodes, [](const Node& node) { return node.op == Op::convolution; });
  const auto images = shape_of(first->weight);
  if (images.size() == 4 && images[1] >= 1 && images[1] <= 4) options.channels = static_cast<int>(images[1]);
  return options;
}

StateDict fitted(const Graph& graph, StateDict state, const Fitting& how) {
  Wanted wanted = wanted_by(graph);
  const Places places = places_in(wanted, state);
  std::vector<std::string> differences;
  bool other_head = false;
  std::vector<std::optional<std::string>> found(wanted.tensors.size());  // the name in the file
  for (std::size_t k = 0; k < state.tensors.size(); ++k) {
    if (!places.place[k]) continue;
    Checkpoint::Array& tensor = state.tensors[k];
    Checkpoint::Array& want = wanted.tensors[*places.place[k]];
    std::optional<std::string>& taken = found[*places.place[k]];
    if (how.new_head && wanted.head(*places.place[k])) continue;
    if (taken) {
      if (!same_tensor(tensor, want)) differences.push_back(different_for(want, tensor.name, *taken));
      continue;
    }
    taken = tensor.name;
    if (tensor.shape == want.shape)
      want.values = std::move(tensor.values);
    else
      differences.push_back(tensor.name + " is " + shape_text(tensor.shape) + ", not " + shape_text(want.shape));
    other_head |= tensor.shape != want.shape && wanted.head(*places.place[k]);
  }
  std::map<std::string, Normalization> said;
  bool asks = false;  // for another normalization
  for (std::size_t k = 0; k < state.tensors.size(); ++k) {
    if (places.place[k]) continue;
    const Checkpoint::Array& tensor = state.tensors[k];
    const std::optional<std::size_t> end = places.end[k];
    const bool new_head = end && how.new_head && wanted.head(*end);
    const bool copy = new_head || (end && same_tensor(tensor, wanted.tensors[*end])) ||
                      (places.inside[k].starts_with("layers.") &&
                       std::ranges::any_of(wanted.tensors, [&](const Checkpoint::Array& want) {
                         return leaf(want.name) == leaf(tensor.name) && same_tensor(tensor, want);
                       }));
    const std::vector<float>* numbers = normalization_called(tensor.name, graph.normalization);
    if (numbers != nullptr) {
      Normalization& all = said[tensor.name.substr(0, tensor.name.size() - leaf(tensor.name).size())];
      (numbers == &graph.normalization.mean ? all.mean : all.deviation) = tensor.values;
    }
    const bool unused = places.inside[k].starts_with("sub_block1.");
    if (copy || unused || (numbers != nullptr && nearly_equal(tensor.values, *numbers))) continue;
    if (places.whole[k] && found[*end])
      differences.push_back(different_for(wanted.tensors[*end], tensor.name, *found[*end]));
    else
      differences.push_back(tensor.name + " " + shape_text(tensor.shape) +
                            (numbers == nullptr ? " has no place in it" : " asks for another --normalize"));
    asks |= numbers != nullptr;
  }
  for (std::size_t k = 0; k < wanted.tensors.size(); ++k) {
    Checkpoint::Array& want = wanted.tensors[k];
    if (how.new_head && wanted.head(k))
      want.values = initial_values(graph.segments, k, how.seed);
    else if (!found[k])
      differences.push_back(want.name + " " + shape_text(want.shape) + " is missing");
  }
  constexpr std::size_t kNamed = 10;
  std::string all;
  for (std::size_t k = 0; k < std::min(kNamed, differences.size()); ++k) all += (k > 0 ? "; " : "") + differences[k];
  if (differences.size() > kNamed) all += "; and " + std::to_string(differences.size() - kNamed) + " more";
  if (asks) all += hint_of(said);
  if (other_head) all += "; --new-head N begins its last layer anew, with N classes";
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
