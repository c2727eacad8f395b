#include "network/networks.hpp"

namespace dat {

namespace {

constexpr int kStem = 16;  // channels of the first convolution
[[nodiscard]] std::vector<int> stages_of(int depth) { return std::vector<int>(3, (depth - 4) / 6); }

}  // namespace

/// Wide ResNet (Zagoruyko and Komodakis 2016) as TRADES and RobustBench have it (wideresnet.py): three stages, a batch
/// norm before the pool. The first stage has `width` channels, 16 times the widening factor. TRADES's class has a
/// second first stage, sub_block1, which takes no part; it is not here. Depth 28 and width 160, 10 classes: 80 tensors,
/// 36,479,194 parameters.
Graph wide_resnet(const NetworkOptions& options, int depth) {
  NetworkBuilder net(options);
  int x = stem_of(net, "conv1", kStem);
  for (const auto& [block, channels, stride] : residual_blocks("block", ".layer.", options.width, stages_of(depth)))
    x = preactivation_block(net, x, block, {{channels, 3, stride}, {channels, 3, 1}}, {.shortcut = "convShortcut"});
  return end_of(net, x, "fc", options.classes, "bn1");
}

/// Wide residual network as DeepMind has it (Gowal et al. 2020; RobustBench's dm_wide_resnet.py): other names, and
/// TensorFlow's padding, which is none above and left where an even number of rows is halved. Weights begin as where
/// these networks are trained in PyTorch (DM-Improves-AT, Wang et al. 2023); DeepMind's own code in JAX begins with a
/// truncated normal distribution by the fan-in, and the last layer with zeros. Running statistics have the momentum of
/// all networks here, 0.1, and 0.01 where these networks are trained in PyTorch.
Graph dm_wide_resnet(const NetworkOptions& options, int depth) {
  const BlockNames names{.norm = "batchnorm_", .convolution = "conv_", .shortcut = "shortcut", .first = 0};
  NetworkBuilder net(options);
  net.begin_weights(Initial::normal_fan_out, Initial::zero);
  int x = stem_of(net, "init_conv", kStem);
  for (const auto& [block, channels, stride] : residual_blocks("layer.", ".block.", options.width, stages_of(depth), 0))
    x = preactivation_block(net, x, block, {{channels, 3, stride}, {channels, 3, 1}}, names, Padding::same);
  return end_of(net, x, "logits", options.classes, "batchnorm");
}

}  // namespace dat
