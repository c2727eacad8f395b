#include "network/networks.hpp"

namespace dat {

/// ResNet-18 for small images (He et al. 2015, as in kuangliu/pytorch-cifar): a 3x3 first convolution, no max pool.
/// 62 tensors; 11,173,962 parameters at width 64 and 10 classes.
Graph resnet18(const NetworkOptions& options) {
  NetworkBuilder net(options);
  int x = stem_of(net, "conv1", options.width);
  x = net.activation(net.batch_norm("bn1", x));
  for (const auto& [block, channels, stride] : residual_blocks("layer", ".", options.width, {2, 2, 2, 2}))
    x = postactivation_block(net, x, block, {{channels, 3, stride}, {channels, 3, 1}}, "shortcut");
  return end_of(net, x, "linear", options.classes);
}

}  // namespace dat
