#include "network/networks.hpp"

#include <optional>

#include "dat/number.hpp"

namespace dat {

namespace {

/// Networks whose names end with depth and widening factor.
struct WideFamily {
  std::string name;
  Graph (*make)(const NetworkOptions& options, int depth);
  std::string activation, cites;
};
constexpr const char* kForm = "_D_W";
constexpr int kDeepest = 1000, kWidest = 256;
constexpr int kStageWidth = 16;  // channels of the first stage, by the widening factor

[[nodiscard]] const std::vector<WideFamily>& wide_families() {
  static const std::vector<WideFamily> all = {
      {"wrn", wide_resnet, "relu", "Zagoruyko and Komodakis (Wide ResNets), 2016"},
      {"dm_wrn", dm_wide_resnet, "silu",
       "Gowal et al., \"Uncovering the Limits of Adversarial Training against Norm-Bounded Adversarial Examples\", "
       "2020"}};
  return all;
}

struct Wide {
  const WideFamily* family;
  int depth, factor;
};

/// Network in a name; empty: the name has none of the forms, or there is no such network.
[[nodiscard]] std::optional<Wide> read_wide(const std::string& name) {
  for (const WideFamily& family : wide_families()) {
    const std::size_t begin = family.name.size() + 1, between = name.find('_', begin);
    if (between == std::string::npos) continue;
    const std::string depth = name.substr(begin, between - begin), factor = name.substr(between + 1);
    Wide wide{&family, {}, {}};
    if (read_number(depth, wide.depth) && read_number(factor, wide.factor) &&
        name == family.name + "_" + std::to_string(wide.depth) + "_" + std::to_string(wide.factor) &&
        wide.depth >= 10 && wide.depth <= kDeepest && wide.depth % 6 == 4 && wide.factor >= 1 && wide.factor <= kWidest)
      return wide;
  }
  return std::nullopt;
}

[[nodiscard]] std::function<Graph(const NetworkOptions&)> maker_of(const Wide& wide) {
  return [wide](const NetworkOptions& options) { return wide.family->make(options, wide.depth); };
}

/// The row of a name that has one of the forms.
[[nodiscard]] Networks::Row wide_row(const std::string& name) { return {name, maker_of(read_wide(name).value())}; }

}  // namespace

std::string about_networks() {
  std::string forms;
  for (const std::string& form : Networks::forms()) forms += (forms.empty() ? "any " : " and ") + form;
  return forms + ", where D, the depth, is 4 more than a multiple of 6, from 10 to " + std::to_string(kDeepest) +
         ", and W, the widening factor, 1 to " + std::to_string(kWidest);
}

std::vector<std::string> Networks::forms() {
  std::vector<std::string> all;
  for (const WideFamily& family : wide_families()) all.push_back(family.name + kForm);
  return all;
}

std::function<Graph(const NetworkOptions&)> Networks::at(const std::string& name) const {
  if (const std::optional<Wide> wide = read_wide(name)) return maker_of(*wide);
  std::string known;
  for (const std::string& one : names()) {
    if (one == name) return Registry::at(name);
    known += one + ", ";
  }
  fail(ExitCode::usage, "unknown network '", name, "'; known: ", known, "and ", about_networks());
}

std::string Networks::cites(const std::string& name) const {
  const std::optional<Wide> wide = read_wide(name);
  return wide ? wide->family->cites : Registry::cites(name);
}

const Networks& networks() {
  const char *const residual = "He et al., \"Deep Residual Learning for Image Recognition\", 2015",
                    *const preactivation = "He et al., \"Identity Mappings in Deep Residual Networks\", 2016",
                    *const wide = wide_families().front().cites.c_str();
  static const Networks all("network", {wide_row("dm_wrn_28_10"),
                                        wide_row("dm_wrn_70_16"),
                                        {"imagenet_resnet18", imagenet_resnet18, {{"size", "224"}}, residual},
                                        {"imagenet_resnet50", imagenet_resnet50, {{"size", "224"}}, residual},
                                        {"imagenet_wrn50_2", imagenet_wrn50_2, {{"size", "224"}}, wide},
                                        {"preact_resnet18", preact_resnet18, {}, preactivation},
                                        {"preact_resnet18_bn", preact_resnet18_bn, {}, preactivation},
                                        {"preact_resnet50", preact_resnet50, {}, preactivation},
                                        {"resnet18", resnet18, {}, residual},
                                        {"small_cnn", small_cnn},
                                        wide_row("wrn_16_4"),
                                        wide_row("wrn_28_10"),
                                        wide_row("wrn_34_10")});
  return all;
}

bool is_formed_network(const std::string& name) { return read_wide(name).has_value(); }

int default_width(const std::string& network) {
  const std::optional<Wide> wide = read_wide(network);
  return wide ? kStageWidth * wide->factor : NetworkOptions{}.width;
}

std::string default_activation(const std::string& network) {
  const std::optional<Wide> wide = read_wide(network);
  return wide ? wide->family->activation : "relu";
}

Activation activation_from(const std::string& name) {
  if (name == "relu") return Activation::relu;
  if (name == "silu") return Activation::silu;
  fail(ExitCode::usage, "unknown activation '", name, "'; known: relu, silu");
}

}  // namespace dat
