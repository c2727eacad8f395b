#include "network/networks.hpp"

namespace dat {

namespace {

Graph preact_resnet18_with(const NetworkOptions& options, const std::string& last_norm) {
  NetworkBuilder net(options);
  int x = stem_of(net, "conv1", options.width);
  for (const auto& [block, channels, stride] : residual_blocks("layer", ".", options.width, {2, 2, 2, 2}))
    x = preactivation_block(net, x, block, {{channels, 3, stride}, {channels, 3, 1}});
  return end_of(net, x, "linear", options.classes, last_norm);
}

}  // namespace

/// PreActResNet-18 (He et al. 2016) in the variant of the DAT papers: nothing between the first convolution and the
/// first block, no batch norm before the pool. 54 tensors; 11,171,146 parameters at width 64 and 10 classes.
Graph preact_resnet18(const NetworkOptions& options) { return preact_resnet18_with(options, ""); }

/// PreActResNet-18 with batch norm and an activation before the pool, as He et al. 2016 have it, and fast_adversarial
/// (Wong et al. 2020), robust_overfitting (Rice et al. 2020) and N-FGSM (de Jorge et al. 2022) in preact_resnet.py.
/// 56 tensors; 11,172,170 parameters at width 64 and 10 classes.
Graph preact_resnet18_bn(const NetworkOptions& options) { return preact_resnet18_with(options, "bn"); }

}  // namespace dat
