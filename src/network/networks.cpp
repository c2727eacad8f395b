#include "network/networks.hpp"

namespace dat {

const Registry<Graph(const NetworkOptions&)>& networks() {
  static const Registry<Graph(const NetworkOptions&)> all(
      "network", {{"preact_resnet18", preact_resnet18}, {"resnet18", resnet18}, {"small_cnn", small_cnn}});
  return all;
}

}  // namespace dat
