#include "network/networks.hpp"

namespace dat {

/// PreActResNet-50 (He et al. 2016, as in kuangliu/pytorch-cifar): bottlenecks of 1x1, 3x3 and 1x1 convolutions, with
/// `width` channels inside in the first stage and four times as many between blocks; else like PreActResNet-18.
/// 151 tensors; 23,509,066 parameters at width 64 and 10 classes.
Graph preact_resnet50(const NetworkOptions& options) {
  constexpr int kExpansion = 4;
  NetworkBuilder net(options);
  int x = stem_of(net, "conv1", options.width);
  for (const auto& [block, inside, stride] : residual_blocks("layer", ".", options.width, {3, 4, 6, 3}))
    x = preactivation_block(net, x, block, {{inside, 1, 1}, {inside, 3, stride}, {kExpansion * inside, 1, 1}});
  return end_of(net, x, "linear", options.classes);
}

}  // namespace dat
