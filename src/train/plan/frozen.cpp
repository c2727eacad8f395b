#include "train/plan/frozen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

#include "dat/error.hpp"
#include "options/values/hints.hpp"

namespace dat {

namespace {

const char* const kAllButHead = "all-but-head";

/// Returns whether `name` is that of the part, or of something within it.
[[nodiscard]] bool within(const std::string& name, const std::string& part) {
  return name.starts_with(part) && (name.size() == part.size() || name[part.size()] == '.');
}

void add(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

/// All that may be named, in the order of the network.
struct Names {
  std::vector<std::string> blocks{kAllButHead}, modules;
};

[[nodiscard]] Names names_in(const Graph& graph) {
  Names names;
  const Segment& head = graph.segments.back();
  for (const Segment& segment : graph.segments) {
    if (segment.module != head.module) add(names.modules, segment.module);
    if (segment.block == head.block) continue;
    std::istringstream words(segment.block);
    std::string name;
    for (std::string word; std::getline(words, word, '.');) {
      name += (name.empty() ? "" : ".") + word;
      if (std::isdigit(static_cast<unsigned char>(word.back())) != 0) add(names.blocks, name);  // a stage is numbered
    }
    add(names.blocks, segment.block);
  }
  return names;
}

/// "NAME; it is one of ...": the names that are most like it first.
[[nodiscard]] std::string known_names(const Graph& graph, const std::string& word) {
  constexpr int kClose = 3;
  const Names names = names_in(graph);
  std::vector<std::string> all = names.blocks, close;
  all.insert(all.end(), names.modules.begin(), names.modules.end());
  for (int k = 0; k < kClose; ++k) {
    const std::string one = nearest(word, all);
    if (one.empty()) break;
    std::erase(all, one);
    close.push_back(one);
  }
  for (const std::string& block : names.blocks) add(close, block);
  return fmt::format("{}; or a module within them, such as {}", fmt::join(close, ", "),
                     names.modules[names.modules.size() / 2]);
}

}  // namespace

int frozen_segments(const Graph& graph, Granularity granularity, const std::string& up_to) {
  if (up_to == "none") return 0;
  const int head = graph.nodes.back().weight;
  int end = up_to == kAllButHead ? head : 0;
  for (const Segment& segment : graph.segments)
    if (within(segment.name.substr(0, segment.name.rfind('.')), up_to) || within(segment.block, up_to) ||
        within(segment.module, up_to))
      end = static_cast<int>(&segment - graph.segments.data()) + 1;
  require(end > 0, ExitCode::usage, "--freeze ", up_to, ": the network has nothing of this name; it has ",
          known_names(graph, up_to));
  require(end <= head, ExitCode::usage, "--freeze ", up_to,
          " leaves nothing to train; all-but-head leaves the last layer");
  Parameters layers;
  layers.segments = graph.segments;
  assign_layers(layers, granularity);
  const Segment& last = layers.segments[static_cast<std::size_t>(end) - 1];
  const auto trained = std::find_if(layers.segments.begin() + end, layers.segments.end(),
                                    [&](const Segment& segment) { return segment.layer <= last.layer; });
  require(trained == layers.segments.end(), ExitCode::usage, "--freeze ", up_to, " ends within ",
          layers.layer_names[static_cast<std::size_t>(last.layer)],
          ", which --granularity makes one layer; take --granularity tensor, or freeze the whole of it");
  return end;
}

}  // namespace dat
