#include "network/networks.hpp"

namespace dat {

const Registry<Graph(const NetworkOptions&)>& networks() {
  static const Registry<Graph(const NetworkOptions&)> all("network", {{"preact_resnet18", preact_resnet18},
                                                                      {"preact_resnet18_bn", preact_resnet18_bn},
                                                                      {"preact_resnet50", preact_resnet50},
                                                                      {"resnet18", resnet18},
                                                                      {"small_cnn", small_cnn},
                                                                      {"wrn16_4", wrn16_4},
                                                                      {"wrn28_10", wrn28_10, {{"width", "160"}}},
                                                                      {"wrn34_10", wrn34_10, {{"width", "160"}}}});
  return all;
}

int default_width(const std::string& network) {
  return static_cast<int>(number_of(networks().settings(network), "width").value_or(NetworkOptions{}.width));
}

Activation activation_from(const std::string& name) {
  if (name == "relu") return Activation::relu;
  if (name == "silu") return Activation::silu;
  fail(ExitCode::usage, "unknown activation '", name, "'; known: relu, silu");
}

}  // namespace dat
