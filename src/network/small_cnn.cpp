#include "network/networks.hpp"

namespace dat {

/// Three convolutions with batch norm: for tests and first tries.
Graph small_cnn(const NetworkOptions& options) {
  NetworkBuilder net(options);
  int x = net.input();
  for (int k = 1; k <= 3; ++k) {
    const std::string number = std::to_string(k);
    net.begin_block("conv" + number);
    net.begin_module("conv" + number);
    x = net.convolution("conv" + number, x, k == 1 ? options.width : 2 * options.width, 3, k == 2 ? 2 : 1);
    x = net.activation(net.batch_norm("bn" + number, x));
  }
  return end_of(net, x, "linear", options.classes);
}

}  // namespace dat
