#include "network/networks.hpp"

namespace dat {

/// PreActResNet-18 (He et al. 2016) in the variant of the DAT papers: nothing between the first convolution and the
/// first block, shortcut convolutions without batch norm that read the pre-activated input, no batch norm before the
/// pool. 54 tensors; 11,171,146 parameters at width 64 and 10 classes.
Graph preact_resnet18(const NetworkOptions& options) {
  NetworkBuilder net(options);
  net.begin_block("stem");
  net.begin_module("conv1");
  int x = net.convolution("conv1", net.input(), options.width, 3, 1);
  for (const auto& [block, channels, stride] : resnet18_blocks(options.width)) {
    const bool changes = stride != 1 || net.channels(x) != channels;
    net.begin_block(block);
    net.begin_module(block + ".conv1");
    const int activated = net.relu(net.batch_norm(block + ".bn1", x));
    int y = net.convolution(block + ".conv1", activated, channels, 3, stride);
    net.begin_module(block + ".conv2");
    y = net.relu(net.batch_norm(block + ".bn2", y));
    y = net.convolution(block + ".conv2", y, channels, 3, 1);
    if (changes) {
      net.begin_module(block + ".shortcut");
      x = net.convolution(block + ".shortcut.0", activated, channels, 1, stride);
    }
    x = net.add(y, x);
  }
  net.begin_block("linear");
  net.begin_module("linear");
  net.linear("linear", net.pool(x), options.classes);
  return net.finish();
}

}  // namespace dat
